"""The store where things are wrong: damage, full disks, no locks, no shared memory, strange names."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from termchat.file_locks import take_lock
from termchat.store import Store, StoreError, export, search
from termchat.store import locks as store_locks
from termchat.store.errors import StoreDamagedError, StoreUnavailableError
from termchat.store.writers import MOST_TRIES, is_alive


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database of some conversations."""
    path = tmp_path_factory.mktemp("whole") / "t.db"
    with Store(path) as store:
        for number in range(6):
            for question in range(4):
                turn = store.begin_turn(f"c{number}", f"grün {question} " + "word " * 150, model="m")
                turn.reply.append("an answer " * 60, "thought " * 20)
                turn.reply.finish("done", "stop", {"a": 1})
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


def damaged(data: bytes, source: random.Random) -> bytes:
    form, result = source.choice(["bytes", "high", "zeros", "cut", "schema"]), bytearray(data)
    if form == "bytes":
        for _ in range(source.choice([1, 30, 300])):
            result[source.randrange(len(data))] = source.randrange(256)
    elif form == "high":  # text that is no UTF-8 any more
        for _ in range(source.choice([30, 300, 3000])):
            result[source.randrange(200, len(data))] |= 0x80
    elif form == "zeros":
        page = source.randrange(1, len(data) // 4096) * 4096
        result[page : page + 4096] = bytes(4096)
    elif form == "schema":
        for _ in range(source.choice([1, 5, 30])):
            result[source.randrange(100, 4096)] = source.randrange(256)
    else:
        del result[source.randrange(len(data)) :]
    return bytes(result)


def test_damage_is_always_one_sentence(tmp_path: Path, whole: bytes) -> None:
    """Whatever is damaged: what can be read is, all else is a StoreError."""
    first = random.randrange(1 << 32)
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "t.db").write_bytes(damaged(whole, random.Random(first + number)))
        try:
            with suppress(StoreError), Store(folder / "t.db", busy_timeout=1) as store:
                for use in (
                    lambda: [store.path(each.id) for each in store.list_conversations()],
                    lambda: search(store, "word"),
                    lambda: search(store, "wo"),
                    lambda: export(store, [each.id for each in store.list_conversations()], "json"),
                    lambda: store.begin_turn("c3", "more").reply.finish(),
                    lambda: store.begin_turn("new", "more").reply.finish(),
                ):
                    with suppress(StoreError):
                        use()
        except Exception as error:
            raise AssertionError(f"seed {first + number}") from error
        shutil.rmtree(folder)


def test_a_column_whose_name_is_damaged_is_told(tmp_path: Path, whole: bytes) -> None:
    """All of it can be read, but what is in the column."""
    path = tmp_path / "t.db"
    for column in (b"thinking", b"system"):
        path.write_bytes(whole.replace(column + b" TEXT NOT NULL", column.upper()[::-1] + b" TEXT NOT NULL"))
        with Store(path) as store, pytest.raises(StoreDamagedError, match="has lost a column"):
            store.path("c1")


def test_a_page_of_zeros_is_told_and_the_rest_is_read(tmp_path: Path, whole: bytes) -> None:
    """A damaged table of messages: other conversations are there, and what of this one can be read."""
    path = tmp_path / "t.db"
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as db:
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'message'").fetchone()[0]
    data = bytearray(whole)
    leaf = int.from_bytes(data[(root - 1) * 4096 + 12 :][:2], "big")  # its first cell: the leftmost child
    child = int.from_bytes(data[(root - 1) * 4096 + leaf :][:4], "big")
    data[(child - 1) * 4096 : child * 4096] = bytes(4096)
    path.write_bytes(data)
    with Store(path) as store:
        assert len(store.list_conversations()) == 6
        readable = store.tree("c0")
        assert 0 < len(readable) < 8, "what stood on the page is lost, what did not is shown"
        assert len(store.path("c5")) == 8
        assert store.damage is not None
        assert "is damaged" in store.damage


def test_a_disk_that_is_full_from_the_start_can_be_read_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.begin_turn("x", "Hi").reply.finish()
    room = [False]
    use_wal = "termchat.store.database.Database._use_wal"
    from termchat.store.database import Database

    real = Database._use_wal

    def full(self: Database) -> None:
        if not room[0]:
            raise StoreUnavailableError("the disk is full")
        real(self)

    monkeypatch.setattr(use_wal, full)
    with Store(path) as store:
        assert store.path("x")[0].text == "Hi"
        with pytest.raises(StoreUnavailableError, match="full"):
            store.begin_turn("x", "More")
        assert store.path("x")[0].text == "Hi"
        room[0] = True
        store.begin_turn("x", "More").reply.finish()
        assert [each.text for each in store.path("x")] == ["Hi", "", "More", ""]


@pytest.mark.parametrize("name", [b"caf\xe9", b"new\nline", b"a?b#c%41d&e", b" "])
def test_names_of_homes_are_bytes(tmp_path: Path, name: bytes) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)) / "t.db"
    with Store(path) as store:
        store.begin_turn("x", "Hi").reply.finish()
    with Store(path) as store:
        assert store.path("x")[0].text == "Hi"
    assert path.exists()
    assert os.listdir(os.fsencode(path.parent))


NO_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static int refuse(int cmd) {
    if (!getenv("NO_LOCKS") || (cmd != F_SETLK && cmd != F_SETLKW && cmd != F_GETLK)) return 0;
    errno = atoi(getenv("NO_LOCKS"));
    return 1;
}
#define WRAP(name) int name(int fd, int cmd, ...) { \\
    va_list more; va_start(more, cmd); void *last = va_arg(more, void *); va_end(more); \\
    int (*real)(int, int, ...) = dlsym(RTLD_NEXT, #name); \\
    return refuse(cmd) ? -1 : real(fd, cmd, last); }
WRAP(fcntl) WRAP(fcntl64)
int flock(int fd, int how) {
    int (*real)(int, int) = dlsym(RTLD_NEXT, "flock");
    return refuse(F_SETLK) ? -1 : real(fd, how);
}
void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap64");
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = fd < 0 ? -1 : readlink(link, name, sizeof name - 1);
    if (length > 0 && getenv("NO_SHARED") && (name[length] = 0, strstr(name, "-shm"))) {
        errno = ENODEV;
        return MAP_FAILED;
    }
    return real(at, size, prot, flags, fd, offset);
}
void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    return mmap64(at, size, prot, flags, fd, offset);
}
"""

PROCESS = """
import sys, pathlib, time
from termchat.store import Store, ConversationBusyError
with Store(pathlib.Path(sys.argv[1])) as store:
    while True:
        try:
            turn = store.begin_turn("team", f"question {sys.argv[2]}")
            break
        except ConversationBusyError:
            time.sleep(0.01)
    for piece in range(3):
        turn.reply.append("word ")
        time.sleep(0.01)
    turn.reply.finish()
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that stands for a file system without locks or shared memory."""
    if sys.platform != "linux":
        pytest.skip("made with Linux's loader")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(NO_LOCKS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "shim.so", "shim.c", "-ldl"], cwd=folder, check=True)
    return folder / "shim.so"


@pytest.mark.slow
@pytest.mark.parametrize(
    "without",
    [{"NO_LOCKS": str(errno.ENOLCK)}, {"NO_LOCKS": str(errno.ENOSYS)}, {"NO_SHARED": "1"}],
    ids=["ENOLCK", "ENOSYS", "no-shm"],
)
def test_N022_file_systems_without_locks_or_shared_memory(
    tmp_path: Path, shim: Path, without: dict[str, str]
) -> None:
    """Two processes at once, then the same file where all is well again, and back."""
    path = tmp_path / "t.db"
    environment = {**os.environ, "LD_PRELOAD": str(shim), **without}

    def run(count: int, env: dict[str, str]) -> None:
        command = [sys.executable, "-c", PROCESS, str(path)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started = [subprocess.Popen([*command, str(number)], env=env, **pipes) for number in range(count)]
        for process in started:
            out, err = process.communicate(timeout=300)
            assert (process.returncode, out) == (0, b""), err.decode()
            notes = err.splitlines()
            assert len(notes) <= 1, err.decode()
            assert all(b"no locks" in note for note in notes), err.decode()

    run(2, environment)
    with Store(path) as store:
        assert [each.role for each in store.path("team")] == ["user", "assistant"] * 2
        assert len(store.tree("team")) == 4
    run(1, environment)
    with Store(path) as store:
        assert [each.text for each in store.path("team")][1::2] == ["word word word "] * 3
    assert not Path(f"{path}.lock").exists()


def test_N022_without_locks_a_dead_writer_is_known_by_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.begin_turn("x", "Hi").reply.append("half")
        folder = path.with_name("t.db-writers")
        name = store._writer.name
        assert is_alive(folder, name)
        (folder / name).write_text((folder / name).read_text().replace(str(os.getpid()), "99999999"))
        with Store(path) as other:
            assert other.path("x")[-1].status == "interrupted"
    foreign = folder / ("0" * 16)
    foreign.write_text("another.machine 1 2")
    assert is_alive(folder, foreign.name), "nobody here can tell"
    day = time.time() - 100_000
    os.utime(foreign, (day, day))
    assert not is_alive(folder, foreign.name)
    assert not foreign.exists()


def test_N022_a_file_system_that_says_every_lock_is_taken_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(fcntl, "flock", flock)
    with Store(tmp_path / "t.db") as store:
        store.begin_turn("x", "Hi").reply.finish()
        assert len(list((tmp_path / "t.db-writers").iterdir())) <= MOST_TRIES


def test_N022_a_file_system_without_the_right_to_lock_is_one_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (tmp_path / "f").open("w") as file:
        assert take_lock(file.fileno()) == "unsupported"


def test_N022_a_lock_left_by_a_killed_program_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    lock = Path(f"{path}.lock")
    lock.mkdir()
    store_locks.remove_stale(path)
    assert lock.exists(), "it may be in use"
    old = time.time() - 100
    os.utime(lock, (old, old))
    store_locks.remove_stale(path)
    assert not lock.exists()
    store_locks.remove_stale(path)


def test_a_database_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_bytes(b"\xff\xfe" * 5000)
    with pytest.raises(StoreDamagedError, match="move it away"):
        Store(tmp_path / "t.db")
