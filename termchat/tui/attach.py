"""Files in a message: `@path` puts a text file's content below the message."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import UserError
from ..files import TextError, decode, expanded
from ..store.rows import clean

LARGEST = 1_000_000
"""Bytes of one file; more would not fit any model's context."""

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')


class AttachError(UserError):
    """A file cannot be attached."""


def mentioned(text: str) -> list[str]:
    """The paths that a text mentions with @, whether or not there are such files."""
    return [quoted or plain for quoted, plain in _MENTION.findall(text)]


def expand(text: str, folder: Path) -> str:
    """The text with the content of each file it mentions below it; what names no file stays as it is.

    AttachError: a file is there but cannot be attached.
    """
    blocks = []
    for name in dict.fromkeys(mentioned(text)):
        path = folder / expanded(name)
        try:
            there = path.is_file()
        except (OSError, ValueError):  # no name that a file could have
            there = False
        if there:
            blocks.append(block(name, read(path)))
    return "\n\n".join([text, *blocks])


def read(path: Path) -> str:
    """A file's text. AttachError."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise AttachError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > LARGEST:
        raise AttachError(f"{path} has more than {LARGEST} bytes; attach a part of it")
    try:
        text = decode(data).text
    except TextError:
        text = data.decode("utf-8", "replace")
    if "\0" in text:
        raise AttachError(f"{path} is no text file")
    return clean(text)


def block(name: str, text: str) -> str:
    """A file's text as a code block, with a fence longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{Path(name).name}\n{text.rstrip()}\n{fence}"
