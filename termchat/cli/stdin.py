"""Text that comes in: standard input and arguments, as valid Unicode whatever the bytes were."""

from __future__ import annotations

import codecs
import fcntl
import io
import os
import select
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from ..charset import UTF_8, charset
from ..files import MARKS, binary_kind, encoding_of, name_of
from ..given_file import read_some
from .errors import CliError

PATIENCE_MS = 1000
"""With a prompt given, an idle pipe is mentioned after this time: it may have been inherited by mistake."""

LIMIT_BYTES = 64 << 20
"""More than any model's context holds; an endless pipe must not fill the memory."""

Kind = Literal["terminal", "data", "device", "closed"]


def kind_of(fd: int, closed: frozenset[int] = frozenset()) -> Kind:
    """What a file descriptor is: a terminal, data (a file, pipe or socket), another device, or closed.

    One that can only be written is as good as closed: `nohup` puts such a one in place of a terminal.
    """
    if fd in closed or fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
        return "closed"
    if os.isatty(fd):
        return "terminal"
    mode = os.fstat(fd).st_mode
    is_data = stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    return "data" if is_data else "device"


class Input(io.RawIOBase):
    """A file descriptor as a stream of bytes; a text whose byte order mark says UTF-16 or 32 comes as UTF-8.

    Wrap it into io.BufferedReader. The descriptor stays open.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._begun = False

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Bytes into `buffer`; 0 at the end. OSError."""
        if not self._begun:
            self._begin()
        ended = False
        while not self._held and not ended:
            piece = read_some(self._fd)
            ended = not piece
            self._held = self._as_utf8(piece, ended)
        size = min(len(buffer), len(self._held))
        buffer[:size] = self._held[:size]
        self._held = self._held[size:]
        return size

    def _begin(self) -> None:
        """Read as much as tells which mark there is, and take it away."""
        head, piece = b"", b"?"
        while piece and _could_be_mark(head):
            piece = read_some(self._fd)
            head += piece
        encoding, mark = encoding_of(head)
        if encoding != "utf-8":
            self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._held = self._as_utf8(head[len(mark) :], ended=not piece)
        self._begun = True

    def _as_utf8(self, piece: bytes, ended: bool) -> bytes:
        if self._decoder is None:
            return piece
        return self._decoder.decode(piece, ended).encode("utf-8", "replace")


def read_all(fd: int, waiting: Callable[[], None] | None = None) -> bytes:
    """Everything until the end; `waiting` is called after a second of silence. CliError: it has no end."""
    if waiting is not None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(PATIENCE_MS):
            waiting()
    data = bytearray()
    while True:
        try:
            piece = read_some(fd)
        except OSError as error:
            raise CliError("stdin", f"cannot read standard input: {error.strerror}") from error
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > LIMIT_BYTES:
            raise CliError(
                "prompt_too_long",
                f"standard input holds more than {LIMIT_BYTES >> 20} MiB, more than any model's context; "
                "give it a part of the text",
            )


def decode(data: bytes, name: str, note: Callable[[str], None], otherwise: str = UTF_8) -> str:
    """The text without byte order marks at its head; what is no text becomes U+FFFD, and a note says where.

    UTF-8, unless a mark says that it is UTF-16 or UTF-32. otherwise: what it is in if it cannot be that.
    CliError: it is no text at all, but a picture, say.
    """
    encoding, mark = encoding_of(data)
    if not mark and (kind := binary_kind(data)) is not None:
        raise CliError("usage", f"{name} is no text but {kind}")
    body = data[len(mark) :]
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        if otherwise != UTF_8 and not mark:
            with suppress(UnicodeDecodeError):
                return body.decode(otherwise)
        where = f"{name_of(encoding)} at byte offset {error.start + len(mark)}"
        note(f"{name} is not valid {where}; such bytes are replaced by U+FFFD")
        text = body.decode(encoding, "replace")
    if text.count("\0") * 4 > len(text):
        note(f"{name} has many bytes of value 0: it may be no text, or UTF-16 without a byte order mark")
    return text.lstrip("\ufeff")


def argument_text(value: str, name: str, note: Callable[[str], None]) -> str:
    """An argument as text: Python hands over undecodable bytes as lone surrogates. They are in UTF-8, or as
    the locale says.
    """
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return decode(os.fsencode(value), name, note, charset())
    return value.lstrip("\ufeff")


def without_line_end(text: str) -> str:
    """The text without the end of its last line, which a file has and an argument has not."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def joined(prompt: str | None, data: str | None) -> str:
    """Instruction first, data second, a blank line between; either can be missing."""
    return "\n\n".join(part for part in (prompt, data) if part)


def _could_be_mark(head: bytes) -> bool:
    """Whether more bytes could still make a (longer) mark of it."""
    return any(len(head) < len(mark) and mark.startswith(head) for mark, _ in MARKS)
