"""What a typed text is: a command, or a message. `//` begins a message with a slash."""

from __future__ import annotations

import re

_COMMAND = re.compile(r"/[^\s/*]*(?!\S)")


def is_command(text: str) -> bool:
    """Whether a typed text is a command: not one that begins with a path or a comment, or with `//`."""
    return _COMMAND.match(text) is not None


def message_of(text: str) -> str:
    """The message that a typed text is."""
    return text[1:] if text.startswith("//") else text


def as_typed(message: str) -> str:
    """How a message is typed: put back into the prompt it must not be a command."""
    return f"/{message}" if is_command(message) or message.startswith("//") else message
