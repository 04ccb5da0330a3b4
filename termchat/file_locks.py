"""Locks between processes: on a file that stays, until its last descriptor is closed."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

from .files import open_private

log = logging.getLogger(__name__)


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
    """Take the exclusive lock of an open file if nobody has it. It ends with the last copy of `fd`.

    A file system without locks keeps nobody apart: one goes on then as if the lock were taken.
    """
    return take_lock(fd) != "held"


def take_lock(fd: int) -> Literal["taken", "held", "unsupported"]:
    """Like `try_lock`, for those to whom it matters that another process's lock cannot be seen."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):  # EACCES: a network file system's word for it
            return "held"
        if error.errno == errno.EBADF:
            raise
        _tell_once(error.strerror)
        return "unsupported"
    return "taken"


@cache
def _tell_once(reason: str) -> None:
    log.warning("this file system has no locks (%s): two programs at once are not kept apart", reason)
