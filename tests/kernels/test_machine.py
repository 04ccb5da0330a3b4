"""CPUs and memory that a process may use, by its control groups (versions 1 and 2) and its affinity."""

import os
from pathlib import Path

import pytest

from kernels import machine
from kernels.machine import cgroup_cpus, cgroup_room, most_cpus, usable_cpus


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_the_least_quota_of_nested_groups_holds(tmp_path):
    group(tmp_path, cpu__max="max 100000\n")
    group(tmp_path / "a", cpu__max="350000 100000\n")
    group(tmp_path / "a/b", cpu__max="max 100000\n")
    assert cgroup_cpus("0::/a/b\n", tmp_path) == 3.5
    group(tmp_path / "a/b", cpu__max="150000 100000\n")
    assert cgroup_cpus("0::/a/b\n", tmp_path) == 1.5
    assert cgroup_cpus("0::/\n", tmp_path) is None


def test_a_container_sees_its_own_group_at_the_root(tmp_path):
    group(tmp_path, cpu__max="200000 100000")
    assert cgroup_cpus("0::/system.slice/docker-1.scope\n", tmp_path) == 2
    assert cgroup_cpus("0::/../../elsewhere\n", tmp_path) == 2


def test_version_1_quota(tmp_path):
    group(tmp_path / "cpu/job", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    group(tmp_path / "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert cgroup_cpus("11:memory:/job\n4:cpu,cpuacct:/job\n", tmp_path) == 0.5
    assert cgroup_cpus("4:cpu,cpuacct:/\n2:memory:/job\n", tmp_path) is None


def test_no_groups_set_no_limit(tmp_path):
    assert cgroup_cpus("", tmp_path) is None
    assert cgroup_cpus("0::/gone\n", tmp_path) is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs processor affinity")
def test_usable_cpus_follow_affinity():
    before = os.sched_getaffinity(0)
    assert 1 <= usable_cpus() <= len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(("quota", "threads"), [(0.5, 1), (1.9, 1), (None, 2), (64.0, 2)])
def test_usable_cpus_round_a_quota_down_but_not_to_nothing(quota, threads, monkeypatch):
    monkeypatch.setattr(machine, "cgroup_cpus", lambda membership, root: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5}, raising=False)
    assert usable_cpus() == threads


@pytest.mark.parametrize(("quota", "threads"), [(0.5, 1), (1.2, 2), (None, 2), (64.0, 2)])
def test_no_more_threads_than_a_quota_touches(quota, threads, monkeypatch):
    monkeypatch.setattr(machine, "cgroup_cpus", lambda membership, root: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5}, raising=False)
    assert most_cpus() == threads


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 8 GB free whose groups and membership are these files."""
    (tmp_path / "meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable:    8000000 kB\n")
    monkeypatch.setattr(machine, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_MEMBERSHIP", tmp_path / "cgroup")
    (tmp_path / "cgroup").write_text("0::/\n")
    return tmp_path


def memory(folder: Path, limit: int | str, used: int, cached: int = 0, active: int = 0) -> None:
    stat = f"anon {used - cached - active}\nfile {cached}\ninactive_file {cached}\nactive_file {active}\n"
    group(folder, memory__max=f"{limit}\n", memory__current=f"{used}\n", memory__stat=stat)


def test_N016_file_caches_of_a_container_count_as_free(system):
    memory(system / "groups", 2147483648, 1900000000, 1500000000)
    assert machine.free_memory() == 2147483648 - 400000000
    memory(system / "groups", 2147483648, 1900000000, 1000000000, active=500000000)
    assert machine.free_memory() == 2147483648 - 400000000, "a file that was read twice is cache as well"
    memory(system / "groups", 2147483648, 2200000000, 0)
    assert machine.free_memory() == 0
    memory(system / "groups", "max", 1900000000, 1500000000)
    assert machine.free_memory() == 8000000 * 1024


def test_N016_the_process_s_own_group_and_those_around_it_hold(system):
    (system / "cgroup").write_text("0::/user.slice/run-1.scope\n")
    inner = system / "groups/user.slice/run-1.scope"
    memory(system / "groups", "max", 5 << 30)
    memory(inner.parent, 6 << 30, 2 << 30)
    memory(inner, 1 << 30, 100 << 20)
    assert machine.free_memory() == (1 << 30) - (100 << 20)
    memory(inner.parent, 6 << 30, (6 << 30) - (10 << 20))
    assert machine.free_memory() == 10 << 20
    assert machine.total_memory() == 1 << 30
    group(inner, memory__high=f"{300 << 20}")
    memory(inner.parent, "max", 2 << 30)
    assert machine.free_memory() == 200 << 20, "above memory.high a group hardly gets on"


def test_N016_version_1(system):
    (system / "cgroup").write_text("9:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n")
    stat = "inactive_file 5\ntotal_inactive_file 1500000000\ntotal_active_file 0\n"
    group(  # in a container the group is mounted at the base, and its path is the host's
        system / "groups/memory",
        memory__limit_in_bytes="2147483648",
        memory__usage_in_bytes="1900000000",
        memory__stat=stat,
    )
    assert machine.free_memory() == 2147483648 - 400000000
    group(system / "groups/memory", memory__limit_in_bytes="9223372036854771712")
    assert machine.free_memory() == 8000000 * 1024


def test_no_limits_and_no_files(system, tmp_path):
    assert machine.free_memory() == 8000000 * 1024
    assert cgroup_room("0::/gone\n", tmp_path) is None
    (system / "meminfo").unlink()
    (system / "cgroup").unlink()
    assert machine.free_memory() > 0
    assert machine.total_memory() > 0


def test_a_limit_of_addresses_is_a_limit_of_memory(monkeypatch):
    own = machine.free_memory()
    monkeypatch.setattr(machine, "_text", lambda path: "1000 1 1\n" if path == machine._SIZE else "")
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (10 << 20, machine.resource.RLIM_INFINITY))
    assert machine.free_memory() == (10 << 20) - 1000 * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (1 << 10, 1 << 10))
    assert machine.free_memory() == 0
    assert own > 0


def test_a_system_that_promises_only_what_it_has_limits_what_can_be_asked_for(system, monkeypatch):
    monkeypatch.setattr(machine, "_OVERCOMMIT", system / "overcommit")
    with (system / "meminfo").open("a") as file:
        file.write("CommitLimit: 12000000 kB\nCommitted_AS: 11000000 kB\n")
    for mode, free in (("2", 1000000), ("0", 8000000), ("1", 8000000), ("", 8000000)):
        (system / "overcommit").write_text(f"{mode}\n")
        assert machine.free_memory() == free * 1024
    (system / "overcommit").write_text("2\n")
    (system / "meminfo").write_text("MemAvailable: 5 kB\nCommitLimit: 10 kB\nCommitted_AS: 12 kB\n")
    assert machine.free_memory() == 0, "it may be exceeded where the mode was changed later"


def test_the_memory_in_all_is_known_where_only_files_tell_it(system, monkeypatch):
    """A cache larger than what counted as known before was refused, though memory was free for it."""
    monkeypatch.setattr(os, "sysconf", lambda name: -1)
    assert machine.total_memory() == 16000000 * 1024
    assert machine.free_memory() <= machine.total_memory()


def test_what_a_system_refuses_to_say_or_says_oddly_sets_no_limit_and_fails_nothing(system, monkeypatch):
    """Sandboxes answer with an error, with -1, or with files of another form."""

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    known = machine.free_memory()
    monkeypatch.setattr(machine.resource, "getrlimit", refuse)
    monkeypatch.setattr(os, "sched_getaffinity", refuse, raising=False)
    assert usable_cpus() >= 1
    assert most_cpus() >= 1
    assert machine.free_memory() == known
    assert not machine.has_few_addresses()
    for membership in ("garbage\n", "\n\n", "0:\n", "0::/\nx\n"):
        (system / "cgroup").write_text(membership)
        assert cgroup_cpus(membership, system) is None
        assert machine.free_memory() == known
    monkeypatch.setattr(os, "sysconf", lambda name: -1)
    for text in ("MemAvailable: x kB\n", "MemAvailable:\n", "MemAvailable: -5 kB\n", "\xff\n", ""):
        (system / "meminfo").write_text(text, encoding="latin-1")
        assert machine.free_memory() == machine.total_memory() == machine._UNKNOWN_MEMORY
