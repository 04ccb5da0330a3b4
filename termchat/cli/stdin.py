"""Text that comes in: standard input and arguments, as valid Unicode whatever the bytes were."""

from __future__ import annotations

import os
import select
import stat
from codecs import BOM_UTF8
from collections.abc import Callable
from typing import Literal

from .errors import CliError

PATIENCE_MS = 1000
"""With a prompt given, an idle pipe is mentioned after this time: it may have been inherited by mistake."""

LIMIT_BYTES = 64 << 20
"""More than any model's context holds; an endless pipe must not fill the memory."""

Kind = Literal["terminal", "data", "device", "closed"]


def kind_of(fd: int, closed: frozenset[int] = frozenset()) -> Kind:
    """What a file descriptor is: a terminal, data (a file, pipe or socket), another device, or closed."""
    if fd in closed:
        return "closed"
    if os.isatty(fd):
        return "terminal"
    mode = os.fstat(fd).st_mode
    is_data = stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
    return "data" if is_data else "device"


def read_all(fd: int, waiting: Callable[[], None] | None = None) -> bytes:
    """Everything until the end; `waiting` is called after a second of silence. CliError: it has no end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if waiting is not None and not poll.poll(PATIENCE_MS):
        waiting()
    data = bytearray()
    while True:
        poll.poll()  # a pipe can be non-blocking, set so by another program
        try:
            piece = os.read(fd, 1 << 16)
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


def decode(data: bytes, name: str, note: Callable[[str], None]) -> str:
    """UTF-8 as text without a byte order mark; what is no UTF-8 becomes U+FFFD, and a note says where."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        note(f"{name} is not valid UTF-8 at byte offset {error.start}; such bytes are replaced by U+FFFD")
        text = data.decode("utf-8", "replace")
    return text.removeprefix("\ufeff") if data.startswith(BOM_UTF8) else text


def argument_text(value: str, name: str, note: Callable[[str], None]) -> str:
    """An argument as text: Python hands over undecodable bytes as lone surrogates."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return decode(os.fsencode(value), name, note)
    return value


def without_line_end(text: str) -> str:
    """The text without the end of its last line, which a file has and an argument has not."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def joined(prompt: str | None, data: str | None) -> str:
    """Instruction first, data second, a blank line between; either can be missing."""
    return "\n\n".join(part for part in (prompt, data) if part)
