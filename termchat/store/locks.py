"""Locks of the database where the file system has none: a folder beside it, which SQLite makes and removes.

Some network and FUSE file systems offer no record locks. SQLite's `unix-dotfile` takes their place; it keeps
termchat's programs apart, as all of them find the same.
"""

from __future__ import annotations

import errno
import fcntl
import tempfile
import time
from contextlib import suppress
from pathlib import Path

DOTFILE = "unix-dotfile"

STALE_SECONDS = 60.0
"""No transaction takes that long: whoever made a lock so old has been killed."""


def offered(folder: Path) -> bool:
    """Whether files in this folder can be locked. Tried on a file of its own, which nobody sees.

    (To close one of the database would end the locks that SQLite holds on it in this process.)
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # where no file can be made, nothing will be written either
        return error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
    return True


def remove_stale(database: Path) -> None:
    """Take away the lock of a program that was killed while it held it."""
    lock = Path(f"{database}.lock")
    with suppress(OSError):
        if time.time() - lock.stat().st_mtime > STALE_SECONDS:
            lock.rmdir()
