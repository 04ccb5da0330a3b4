"""What is read: prose, code and a chat that come with termchat, or a file of the user's."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path

from engine import Message

from .. import files
from ..errors import UserError
from ..given_file import read_given
from ..paths import data_file

MOST_BYTES = 1 << 24
"""Of a file. More would take hours and change nothing."""

PIECE = 1 << 16
"""Characters that are tokenized at once: what an engine takes whatever its context."""


class TextError(UserError):
    """There is no text to read."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text by its name, in pieces that are prompts of their own: plain text, or messages."""

    name: str
    pieces: tuple[str | tuple[Message, ...], ...]


def bundled() -> list[Text]:
    """The texts that come with termchat, written for it (Apache-2.0 like the rest), about 2,500 tokens."""
    folder = data_file("texts")
    chat = json.loads((folder / "chat.json").read_text(encoding="utf-8"))
    return [
        *(
            Text(name, pieces((folder / f"{name}.txt").read_text(encoding="utf-8")))
            for name in ("prose", "code")
        ),
        Text("chat", (tuple(Message(**turn) for turn in chat),)),
    ]


def read_text(path: Path) -> Text:
    """A file's text. TextError: it cannot be read, is no Unicode, is empty, or is too large."""
    try:
        text = read_given(path, MOST_BYTES).text
    except files.TextError as error:
        raise TextError(f"{path} {error}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if getattr(error, "errno", None) == errno.EFBIG:
            raise TextError(f"{path} is larger than {MOST_BYTES >> 20} MiB; a part of it would do") from error
        raise TextError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not text.strip():
        raise TextError(f"{path} holds no text")
    return Text(path.name, pieces(text))


def pieces(text: str) -> tuple[str, ...]:
    """The text in pieces that end at line breaks, or at blanks, where there are any."""
    found, start = [], 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            for mark in ("\n", " "):
                cut = text.rfind(mark, start, end)
                if cut > start:
                    end = cut + 1
                    break
        found.append(text[start:end])
        start = end
    return tuple(piece for piece in found if piece.strip())
