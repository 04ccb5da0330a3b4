"""A file that the user names: an ordinary one, or what a shell makes one look like: a pipe, `/dev/stdin`
(`-` for short).
"""

from __future__ import annotations

import errno
import os
import re
import select
from pathlib import Path

from .files import Text, decode

PIECE = 1 << 16

_DESCRIPTOR = re.compile(r"-|/dev/fd/(\d{1,9})|/proc/self/fd/(\d{1,9})|/dev/(stdin)")


def open_given(path: Path | str) -> int:
    """A descriptor to read from; a pipe waits for whoever writes it. OSError, also for a folder.

    What is open already is taken as it is: its other readers go on where this one ends, and it may be a
    socket, which has no name to open it by.
    """
    found = _DESCRIPTOR.fullmatch(str(path))
    if found is not None:
        fd = os.dup(int(found[1] or found[2] or 0))
    else:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        os.read(fd, 0)  # a folder can be opened, but not read
    except BlockingIOError:
        pass
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_given(path: Path | str, largest: int) -> Text:
    """A text file, in any form of Unicode, up to its end. TextError; OSError: it cannot be read, or has more
    than `largest` bytes. It can be read once: the next reader of a pipe finds nothing.
    """
    fd = open_given(path)
    try:
        data = bytearray()
        while len(data) <= largest and (piece := read_some(fd, min(PIECE, largest + 1 - len(data)))):
            data += piece
    finally:
        os.close(fd)
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"it has more than {largest} bytes", str(path))
    return decode(bytes(data))


def read_some(fd: int, size: int = PIECE) -> bytes:
    """The next bytes, as soon as there are some; none at the end, and only there.

    Another program that shares the description can have made it non-blocking, at any moment, and its flags
    are that program's: so "nothing yet" is waited out, never changed. OSError.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        poll.poll()
        try:
            return os.read(fd, size)
        except BlockingIOError:  # somebody else was faster
            continue


def is_read_once(name: str | Path) -> bool:
    """Whether what has this name has to be read at once: a pipe, or what is open already, such as
    standard input, whatever it is.
    """
    return is_file(name) and (_DESCRIPTOR.fullmatch(str(name)) is not None or not os.path.isfile(name))


def is_file(name: str | Path) -> bool:
    """Whether there is something of this name that can be read; no folder."""
    return str(name) == "-" or (os.path.exists(name) and not os.path.isdir(name))
