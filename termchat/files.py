"""The user's files: private from their first moment, replaced in one step, locked across processes."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import UserError


class PathError(UserError):
    """A folder or file of the user cannot be used. Callers may go on without saving."""


def expanded(name: str) -> Path:
    """The path that a user wrote. `~` and `~user` are their homes; of a user who is not there they stay."""
    try:
        return Path(os.path.expanduser(name))
    except ValueError:  # no name that a user could have
        return Path(name)


def private_folder(path: Path) -> Path:
    """Create `path` and its missing parents, all with mode 0700. Folders that exist keep their mode."""
    missing = []
    folder = path
    while not folder.is_dir() and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    try:
        for folder in reversed(missing):
            with suppress(FileExistsError):  # another process was faster
                folder.mkdir(mode=0o700)
        if not path.is_dir():
            raise NotADirectoryError(0, "there is a file of that name")
    except OSError as error:
        raise PathError(f"cannot create the folder {path}: {error.strerror}") from error
    return path


def open_private(path: Path | str, flags: int, *, create: bool = True) -> int:
    """A file descriptor of `path`: a new file gets mode 0600, an old one that others can read is tightened.

    Devices keep their mode, so that a file linked to /dev/null stays harmless.
    """
    fd = os.open(path, flags | (os.O_CREAT if create else 0) | os.O_CLOEXEC, 0o600)
    try:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and stat.S_IMODE(info.st_mode) & 0o077:
            with suppress(PermissionError):  # a file of someone else: theirs to guard
                os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_private(path: Path, text: str) -> None:
    """Replace a file by `text` (UTF-8) in one step, mode 0600; a link stays a link, a device a device."""
    target = Path(os.path.realpath(path))
    data = text.encode("utf-8")
    if target.exists() and not target.is_file():
        with open(open_private(target, os.O_WRONLY, create=False), "wb") as device:
            device.write(data)
        return
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(name, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None, poll: float = 0.1) -> Iterator[None]:
    """Hold an exclusive lock between processes (flock on `path`, which stays); calls `waiting` each poll."""
    fd = open_private(path, os.O_RDWR)
    try:
        while not try_lock(fd):
            if waiting is not None:
                waiting()
            time.sleep(poll)
        yield
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Take the exclusive lock of an open file if nobody has it. It ends with the last copy of `fd`."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
