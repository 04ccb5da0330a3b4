"""Standard output and standard error, written without the interpreter's buffers.

Nothing waits in a buffer when the program ends, so a closed pipe or a full disk is noticed where it happens
and never again at shutdown. Text is UTF-8 whatever the locale says. A terminal gets it made safe, here and
nowhere else; a pipe or a file gets it as it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..errors import UserError
from ..sanitize import Sanitizer, escape_json, one_line

CHUNK = 4096
"""Bytes that a pipe takes without blocking once it says it is writable (PIPE_BUF on Linux)."""


class ReaderClosed(Exception):  # noqa: N818 - an end, not a fault
    """Nobody reads standard output any more."""


class OutputError(UserError):
    """Standard output cannot be written: the disk is full, for example."""


def guard_descriptors() -> frozenset[int]:
    """Open /dev/null in place of standard streams that are closed (`>&-`); the numbers of those.

    Else the next file opened, the database perhaps, would get the number 1, and replies be written to it.
    """
    closed = set()
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            closed.add(fd)
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    return frozenset(closed)


class Output:
    """Standard output. Raises ReaderClosed and OutputError."""

    def __init__(self, fd: int = 1, *, closed: bool = False) -> None:
        self.fd = fd
        self.closed = closed
        self.is_terminal = not closed and os.isatty(fd)
        self._sanitizer = Sanitizer()

    def check(self) -> None:
        """Raise ReaderClosed if it is known already that nobody reads."""
        if self.closed:
            raise ReaderClosed

    def write(self, text: str, *, json: bool = False) -> None:
        """Write all of it, waiting for the reader if needed. json: it is JSON, and stays so."""
        self.check()
        data = self._bytes(text, json)
        while data:
            data = data[self._write(data) :]

    async def send(self, text: str, *, json: bool = False) -> None:
        """Like `write`, but a slow reader does not stop the event loop."""
        self.check()
        data = self._bytes(text, json)
        while data:
            if not _writable(self.fd):
                await _until_writable(self.fd)
            data = data[self._write(data[:CHUNK]) :]

    def _bytes(self, text: str, json: bool) -> memoryview:
        if self.is_terminal:
            text = escape_json(text) if json else self._sanitizer.push(text)
        return memoryview(text.encode("utf-8", "replace"))

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self.fd, data)
        except (BrokenPipeError, ConnectionResetError) as error:
            self.closed = True
            raise ReaderClosed from error
        except BlockingIOError:  # another program made the pipe non-blocking
            select.select([], [self.fd], [])
            return 0
        except OSError as error:
            if error.errno == errno.EIO and self.is_terminal:  # the terminal is gone
                self.closed = True
                raise ReaderClosed from error
            raise OutputError(f"cannot write to standard output: {error.strerror}") from error

    @contextmanager
    def watch(self, closed: Callable[[], object]) -> Iterator[None]:
        """Call `closed` in the event loop when the reader of a pipe goes, also while nothing is written."""
        import asyncio

        loop = asyncio.get_running_loop()
        is_pipe = _writes_to_pipe(self.fd)

        def gone() -> None:
            loop.remove_reader(self.fd)
            self.closed = True
            closed()

        if is_pipe:  # the writing end becomes "readable" only by the error that its reader has closed
            loop.add_reader(self.fd, gone)
        try:
            yield
        finally:
            if is_pipe:
                loop.remove_reader(self.fd)


def _writes_to_pipe(fd: int) -> bool:
    """Whether it is the writing end of a pipe, and not open for reading what it has written itself."""
    one_way = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    return one_way and stat.S_ISFIFO(os.fstat(fd).st_mode)


def _writable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(0))


async def _until_writable(fd: int) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd)


class Messages:
    """Standard error: notes of one line each, and running text. Never raises: nobody has to read it."""

    def __init__(self, fd: int = 2) -> None:
        self.fd = fd
        self.is_terminal = os.isatty(fd)
        self.colour = self.is_terminal and not os.environ.get("NO_COLOR")
        self._sanitizer = Sanitizer()

    def note(self, message: str) -> None:
        """One line, with the program's name in front."""
        self._write(f"termchat: {one_line(message)}\n")

    def text(self, text: str) -> None:
        """Text, made safe for a terminal."""
        self._write(self._sanitizer.push(text) if self.is_terminal else text)

    def progress(self, text: str) -> None:
        """A line in the place of the one before; "" leaves none. Only for a terminal."""
        self.control("\r\x1b[K")
        self.text(text)

    def control(self, sequence: str) -> None:
        """A control sequence of our own. Only for a terminal."""
        self._write(sequence)

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        with suppress(OSError):
            while data:
                data = data[os.write(self.fd, data) :]
