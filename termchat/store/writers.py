"""Who is writing a reply: a lock file for each writer, held while its process lives.

A reply that streams is marked with its writer's name. When the process dies, however it dies, the system
drops the lock, and anyone can tell that the reply will not be finished. (A process id would not do: it is
used again, and means nothing in another container that shares the home folder. Where the file system has no
locks it is the best there is: the file says which process it was, and of which machine.)
"""

from __future__ import annotations

import os
import re
import socket
import time
from contextlib import suppress
from pathlib import Path

from ..file_locks import take_lock, try_lock
from ..files import PathError, open_private, private_folder

FOREIGN_SECONDS = 24 * 3600.0

MOST_TRIES = 5
"""New files of which others may hold the lock at that moment, as they sweep up; then it is not they."""


class Writer:
    """A store's claim to the replies it writes. The lock file is made when its name is first asked for.

    folder: of the lock files; None where no other process could ask.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._name: str | None = None
        self._fd = -1

    @property
    def name(self) -> str:
        """What to mark rows with. PathError: the lock file cannot be made."""
        tries = 0
        while self._name is None:
            tries += 1
            name = os.urandom(8).hex()
            if self._folder is None:
                self._name = name
                break
            file = private_folder(self._folder) / name
            try:
                fd = open_private(file, os.O_RDWR | os.O_EXCL)
            except OSError as error:
                raise PathError(f"cannot create {file}: {error.strerror}") from error
            mine = try_lock(fd) or tries >= MOST_TRIES  # a file system may refuse every lock
            if mine and os.path.exists(file):  # not swept away before it was locked
                with suppress(OSError):  # a full disk, which only costs those without locks something
                    os.write(fd, _this_process().encode())
                self._name, self._fd = name, fd
            else:
                os.close(fd)
        return self._name

    def is_mine(self, name: str) -> bool:
        """Whether that is this writer's name."""
        return name == self._name

    def close(self) -> None:
        """Give the claim up."""
        if self._name is not None and self._folder is not None:
            (self._folder / self._name).unlink(missing_ok=True)
            os.close(self._fd)
        self._name = None


def is_alive(folder: Path, name: str) -> bool:
    """Whether the writer of that name still runs. What is left of a dead one is removed."""
    if not re.fullmatch(r"[0-9a-f]{16}", name):  # a name out of a database is not to be trusted as a path
        return False
    file = folder / name
    try:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # better a reply too long unfinished than one finished under its writer's hands
    try:
        lock = take_lock(fd)
        if lock == "held" or (lock == "unsupported" and _may_run(fd)):
            return True
        file.unlink(missing_ok=True)
        return False
    finally:
        os.close(fd)


def _this_process() -> str:
    return f"{socket.gethostname()} {os.getpid()} {_began(os.getpid())}"


def _began(pid: int) -> str:
    """When a process began, in the system's own units, which tells it from a later one of its number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _may_run(fd: int) -> bool:
    """Whether the process a file names can be there still; of another machine's nobody knows for a day."""
    host, _, process = os.pread(fd, 1000, 0).decode("utf-8", "replace").partition(" ")
    pid, _, began = process.partition(" ")
    if host != socket.gethostname() or not pid.isdecimal():
        return time.time() - os.fstat(fd).st_mtime < FOREIGN_SECONDS
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user, so not one of ours
        return False
    return _began(int(pid)) == began


def sweep(folder: Path) -> None:
    """Remove what dead writers left."""
    with suppress(OSError):
        for name in os.listdir(folder):
            is_alive(folder, name)
