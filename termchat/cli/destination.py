"""Where `-o NAME` leads, if that is no file to be kept: a pipe, a socket, a terminal or another device."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .errors import CliError
from .output import Output


@contextmanager
def stream_of(name: str, standard: Output) -> Iterator[Output | None]:
    """The open stream; None if the name is that of a regular file, of a folder, or of nothing yet.

    standard: what `-` is. A FIFO is opened when somebody reads it. CliError: output, it cannot be opened;
    usage, it has no name.
    """
    if not name:
        raise CliError("usage", "the output has no name; give a file, or - for standard output")
    if name == "-":
        yield standard
        return
    try:
        info = os.stat(name)
    except (OSError, ValueError):  # whoever opens the file says what is wrong
        yield None
        return
    if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
        yield None
        return
    try:
        fd = _open_already(info)
        if fd is None:
            fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise CliError("output", f"cannot write {name}: {error.strerror}") from error
    try:
        yield Output(fd, name=name)
    finally:
        os.close(fd)


def _open_already(info: os.stat_result) -> int | None:
    """A copy of the descriptor that /dev/stdout, /dev/fd/63 and the like stand for.

    To open such a name anew fails for a socket, and waits for ever for a pipe that nobody reads any more.
    """
    for entry in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else ():
        with suppress(OSError, ValueError):
            fd = int(entry)
            writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            if writable and os.path.samestat(os.fstat(fd), info):
                return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    return None
