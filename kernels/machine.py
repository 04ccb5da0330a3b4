"""What this process may use of the machine: CPUs by its affinity, free memory, limits of its control groups.

Containers and sandboxes refuse such questions, or answer them oddly; what is not known sets no limit, and
nothing here fails for it.

Sources: Linux kernel documentation, admin-guide/cgroup-v2, admin-guide/cgroup-v1/memory,
scheduler/sched-bwc and mm/overcommit-accounting.
"""

from __future__ import annotations

import math
import os
import platform
import resource
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_MEMORY = Path("/proc/meminfo")
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
_PROCESSOR = Path("/proc/cpuinfo")
_LOAD = Path("/proc/loadavg")
_SIZE = Path("/proc/self/statm")
_UNKNOWN_MEMORY = 4 << 30
"""Bytes, where the system does not say."""


def usable_cpus() -> int:
    """Threads worth starting, at least 1; a part of a CPU doesn't count, as a team waits for its slowest."""
    quota = cgroup_cpus(_text(_MEMBERSHIP), _GROUPS)
    return _affinity() if quota is None else max(1, min(_affinity(), int(quota)))


def most_cpus() -> int:
    """Threads that can run at the same time: one more than `usable_cpus` where a part of a CPU is left."""
    quota = cgroup_cpus(_text(_MEMBERSHIP), _GROUPS)
    return _affinity() if quota is None else max(1, min(_affinity(), math.ceil(quota)))


def free_memory() -> int:
    """Bytes of main memory that can be taken now. File caches count as free: they give way."""
    free = _memory("MemAvailable")
    rooms = (cgroup_room(_text(_MEMBERSHIP), _GROUPS), _address_room(), _commit_room())
    known = [room for room in rooms if room is not None]
    return min([_pages("SC_AVPHYS_PAGES") if free is None else free, *known])


def _memory(field: str) -> int | None:
    """Bytes that /proc/meminfo has in a field."""
    fields = dict(line.split(":", 1) for line in _text(_MEMORY).splitlines() if ":" in line)
    words = fields.get(field, "").split()
    return int(words[0]) * 1024 if words and words[0].isdecimal() else None


def _commit_room() -> int | None:
    """Bytes that programs may still ask for where the system promises no more than it has
    (vm.overcommit_memory = 2), be they used or not; None: it promises more.
    """
    if _text(_OVERCOMMIT).strip() != "2":
        return None
    limit, promised = _memory("CommitLimit"), _memory("Committed_AS")
    return None if limit is None or promised is None else max(0, limit - promised)


def _address_room() -> int | None:
    """Bytes of addresses that the process may still take (`ulimit -v`); None: it has no limit of its own."""
    try:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except OSError:
        return None
    if limit == resource.RLIM_INFINITY:
        return None
    pages = _text(_SIZE).split()
    taken = int(pages[0]) if pages and pages[0].isdecimal() else 0
    return max(0, limit - taken * resource.getpagesize())


def has_few_addresses() -> bool:
    """Whether the process's addresses are limited, so that memory can be refused at any moment."""
    return _address_room() is not None


def need_addresses(nbytes: int, what: str) -> None:
    """MemoryError: fewer than so many bytes of addresses are left under the process's limit.

    For calls of libraries that end the whole process where they get no memory.
    """
    left = _address_room()
    if left is not None and left < nbytes:
        raise MemoryError(
            f"{what} takes about {nbytes >> 20} MiB, and {left >> 20} MiB are left of its limit (ulimit -v)"
        )


def trim_heap() -> None:
    """Give back what the C library keeps of memory that is free again, where it can (glibc's malloc_trim)."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def total_memory() -> int:
    """Bytes of main memory that this process could ever have."""
    limits = [limit for level in _levels("memory", _text(_MEMBERSHIP), _GROUPS) for limit in _limits(level)]
    return min([_memory("MemTotal") or _pages("SC_PHYS_PAGES"), *limits])


def processor() -> str:
    """What the processor calls itself."""
    lines = (line.partition(":") for line in _text(_PROCESSOR).splitlines())
    named = (value.strip() for name, _, value in lines if name.strip() in ("model name", "Model"))
    return next(named, "") or platform.processor() or platform.machine()


def runnable() -> int:
    """Threads of all programs that run or want to at this moment, this one among them; 0: not known."""
    words = _text(_LOAD).split()
    running, slash, _ = words[3].partition("/") if len(words) > 3 else ("", "", "")
    return int(running) if slash and running.isdecimal() else 0


def others_run() -> bool:
    """Whether programs beside the calling thread use a good part of the machine."""
    processors = os.cpu_count() or 1
    return runnable() - 1 >= max(1, processors // 4)


def cgroup_cpus(membership: str, root: Path) -> float | None:
    """Least CPU quota of the groups in `membership` (text of /proc/self/cgroup) and of those around them.

    root: where the control groups are mounted. None if no group sets a limit.
    """
    quotas = [_quota(level) for level in _levels("cpu", membership, root)]
    return min((quota for quota in quotas if quota is not None), default=None)


def cgroup_room(membership: str, root: Path) -> int | None:
    """Bytes until the first of these groups reaches its limit, as `cgroup_cpus` takes them; None: no limit.

    A group's use counts the files it has read, which are dropped before anything else is refused.
    """
    rooms = []
    for level in _levels("memory", membership, root):
        used = _number(level / "memory.current", level / "memory.usage_in_bytes")
        if used is not None:
            rooms += [max(0, limit - max(0, used - _file_cache(level))) for limit in _limits(level)]
    return min(rooms, default=None)


def _levels(controller: str, membership: str, root: Path) -> Iterator[Path]:
    """Folders of the process's groups for a controller, and of the groups around them, versions 1 and 2."""
    for line in membership.splitlines():
        _, colon, group = line.partition(":")
        controllers, second, path = group.partition(":")
        if not (colon and second) or (controllers and controller not in controllers.split(",")):
            continue
        base = root / controller if controllers else root
        folder = base / path.lstrip("/")
        # Inside a container the path may be the host's; the group itself is then mounted at the base.
        yield from (level for level in (folder, *folder.parents) if level.is_relative_to(base))


def _quota(folder: Path) -> float | None:
    """CPUs one control group grants, None for no limit: cpu.max (version 2) or cpu.cfs_* (version 1)."""
    words = _text(folder / "cpu.max").split()
    if not words:
        words = [*_text(folder / "cpu.cfs_quota_us").split(), *_text(folder / "cpu.cfs_period_us").split()]
    try:
        quota, period = (int(word) for word in words)
    except ValueError:  # no such files, or the word "max"
        return None
    return quota / period if quota > 0 and period > 0 else None


def _limits(folder: Path) -> list[int]:
    """Bytes a group may use; above memory.high it is slowed down so much that it is no use either."""
    files = ("memory.max", "memory.high", "memory.limit_in_bytes")
    found = [_number(folder / name) for name in files]
    return [limit for limit in found if limit is not None]


def _file_cache(folder: Path) -> int:
    """Bytes of a group's use that are copies of files. Version 1 has its children in fields of their own."""
    fields = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    names = ("inactive_file", "active_file")
    sizes = [fields.get(f"total_{name}", fields.get(name, "0")).strip() for name in names]
    return sum(int(size) for size in sizes if size.isdecimal())


def _number(*paths: Path) -> int | None:
    """The number in the first of these files that holds one."""
    texts = (_text(path).strip() for path in paths)
    return next((int(text) for text in texts if text.isdecimal()), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux; a sandbox
        return os.cpu_count() or 1


def _pages(name: str) -> int:
    """Bytes in so many pages as the system says; it says -1, or nothing, where it does not tell."""
    try:
        pages = os.sysconf(name)
    except (ValueError, OSError):
        return _UNKNOWN_MEMORY
    return pages * resource.getpagesize() if pages >= 0 else _UNKNOWN_MEMORY
