"""Standard output and standard error, written without the interpreter's buffers.

Nothing waits in a buffer when the program ends, so a closed pipe or a full disk is noticed where it happens
and never again at shutdown. Text is UTF-8 whatever the locale says; a terminal gets it in the locale's
charset and made safe, here and nowhere else.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from ..charset import UTF_8, charset, encoded
from ..errors import UserError
from ..sanitize import Sanitizer, escape_json, one_line
from ..terminals import obeys_sequences

if TYPE_CHECKING:
    import asyncio

CHUNK = 4096
"""Bytes that a pipe takes without blocking once it says it is writable (PIPE_BUF on Linux)."""

HURRY_SECONDS = 0.5
"""How long the reader may keep a reply waiting that a signal has ended."""


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


class _Descriptor:
    """A file descriptor that is written to: by a thread that may wait, or an event loop that may not."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_terminal = os.isatty(fd)
        self._charset = charset() if self.is_terminal else UTF_8
        self._turn: asyncio.Lock | None = None
        self._blocked: asyncio.Future[None] | None = None
        self._hurry: BaseException | None = None

    def give_up(self, reason: BaseException) -> None:
        """Raise `reason` out of a `send` that the reader keeps waiting, a moment from now; from the loop."""
        self._hurry = reason
        self._fail_soon()

    def go_on(self) -> None:
        """A reader has all the time again."""
        self._hurry = None

    def _write(self, data: memoryview) -> int:
        """Bytes written, 0 if there is no room: another program can have made it non-blocking. OSError."""
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0

    def _poll(self, timeout: float | None) -> bool:
        """Whether there is room, or an error to be told of, within so many milliseconds (None: some time)."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        return bool(poll.poll(timeout))

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Until the others have sent all of theirs: a text goes out in pieces when the reader is slow."""
        import asyncio

        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            yield

    async def _room(self) -> None:
        """Wait for room without stopping the event loop. Only by one at a time."""
        import asyncio

        if self._poll(0):
            return
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(self.fd, lambda: None if ready.done() else ready.set_result(None))
        self._blocked = ready
        try:
            self._fail_soon()
            await ready
        finally:
            self._blocked = None
            loop.remove_writer(self.fd)

    def _fail_soon(self) -> None:
        blocked, reason = self._blocked, self._hurry
        if blocked is not None and reason is not None:
            blocked.get_loop().call_later(
                HURRY_SECONDS, lambda: None if blocked.done() else blocked.set_exception(reason)
            )


class Output(_Descriptor):
    """Standard output, or what stands for it by the name `name`. Raises ReaderClosed and OutputError."""

    def __init__(self, fd: int = 1, *, closed: bool = False, name: str = "to standard output") -> None:
        super().__init__(fd)
        self.closed = closed
        self.is_terminal = self.is_terminal and not closed
        self._name = name
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
            data = data[self._sent(data) :]
            if data:
                self._poll(None)

    async def send(self, text: str, *, json: bool = False) -> None:
        """Like `write`, but a slow reader does not stop the event loop."""
        async with self._alone():
            self.check()
            data = self._bytes(text, json)
            while data:
                await self._room()
                data = data[self._sent(data[:CHUNK]) :]

    def _bytes(self, text: str, json: bool) -> memoryview:
        if self.is_terminal:
            text = escape_json(text, self._charset) if json else self._sanitizer.push(text)
        return memoryview(encoded(text, self._charset))

    def _sent(self, data: memoryview) -> int:
        try:
            return self._write(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            self.closed = True
            raise ReaderClosed from error
        except OSError as error:
            if error.errno == errno.EIO and self.is_terminal:  # the terminal is gone
                self.closed = True
                raise ReaderClosed from error
            raise OutputError(f"cannot write {self._name}: {error.strerror}") from error

    @contextmanager
    def watch(self, closed: Callable[[], object]) -> Iterator[None]:
        """Call `closed` in the event loop when the reader goes, also while nothing is written.

        Within the block `give_up` holds; after it a `send` has all the time again.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        watcher = _hangup_of(self.fd)

        def gone() -> None:
            assert watcher is not None, "it was found to be ready"
            loop.remove_reader(watcher.fileno())
            self.closed = True
            closed()

        if watcher is not None:
            loop.add_reader(watcher.fileno(), gone)
        try:
            yield
        finally:
            self.go_on()
            if watcher is not None:
                loop.remove_reader(watcher.fileno())
                watcher.close()


def _hangup_of(fd: int) -> select.epoll | None:
    """What becomes readable when the other end of a pipe or socket is closed; None where that is unseen."""
    mode = os.fstat(fd).st_mode
    if not hasattr(select, "epoll") or not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return None
    watcher = select.epoll()
    watcher.register(fd, 0)  # hang-ups and errors are told unasked
    return watcher


class Messages(_Descriptor):
    """Standard error: notes of one line each, and text. Nobody has to read it: no OSError comes out.

    draws: it is a terminal that obeys control sequences. colour: and is to have colours.
    """

    def __init__(self, fd: int = 2) -> None:
        super().__init__(fd)
        self.draws = self.is_terminal and obeys_sequences(os.environ)
        self.colour = self.draws and not os.environ.get("NO_COLOR")
        self._sanitizer = Sanitizer()

    def note(self, message: str) -> None:
        """One line, with the program's name in front."""
        self.raw(f"termchat: {one_line(message)}\n")

    def text(self, text: str, *, begin: str = "") -> None:
        """Text, made safe for a terminal. begin: a control sequence of our own before it."""
        self.raw(begin + self._safe(text))

    def progress(self, text: str) -> None:
        """A line in the place of the one before; "" leaves none. Only where it `draws`.

        It is cut to the terminal's width: one that wraps could not be drawn over.
        """
        from ..cells import fit

        try:
            width = os.get_terminal_size(self.fd).columns
        except OSError:
            width = 0
        self.text(fit(one_line(text), (width or 80) - 1).rstrip(), begin="\r\x1b[K")

    def raw(self, text: str) -> None:
        """What is known to be safe, as it is."""
        data = memoryview(encoded(text, self._charset))
        with suppress(OSError):
            while data:
                data = data[self._write(data) :]
                if data:
                    self._poll(None)

    async def send(self, text: str, *, begin: str = "") -> None:
        """Like `text`, but a slow reader does not stop the event loop."""
        async with self._alone():
            data = memoryview(encoded(begin + self._safe(text), self._charset))
            with suppress(OSError):
                while data:
                    await self._room()
                    data = data[self._write(data[:CHUNK]) :]

    def _safe(self, text: str) -> str:
        return self._sanitizer.push(text) if self.is_terminal else text
