"""The file that a database is: regular, private, and the same one all the time."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from .errors import StoreError


def guard(path: Path) -> None:
    """Make sure of a regular file that only its owner can read, created if missing.

    An existing file is not opened: closing it would end the locks that SQLite holds on it in this process.
    """
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise StoreError(f"{path} is not a regular file, so nothing is saved")
        if 0 < info.st_size < 512:  # SQLite would take it for a new database
            raise StoreError(
                f"{path} is no database (it has {info.st_size} bytes); move it away to start one"
            )
    except OSError as error:
        raise StoreError(f"cannot create {path}: {error.strerror}") from error
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(FileNotFoundError, PermissionError):
            if stat.S_IMODE(os.stat(name).st_mode) & 0o077:
                os.chmod(name, 0o600)


def is_missing(path: Path) -> bool:
    """Whether nothing has this name; what may not be looked at may be there, as may what a link leads to."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


def identity(path: Path) -> tuple[int, int] | None:
    """Which file has this name: device and number; None: there is none."""
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def writable(path: Path) -> bool:
    """Whether this user can write it, and make files beside it."""
    effective = os.access in os.supports_effective_ids
    return all(os.access(name, os.W_OK, effective_ids=effective) for name in (path, path.parent))
