"""Typed texts that begin with a slash: commands, and messages."""

from __future__ import annotations

import re

_COMMAND = re.compile(r"/[^\s/*]*(?!\S)")
_MARKED = re.compile(r"//[^\s/*]+(?!\S)[^\n]*")


def is_command(text: str) -> bool:
    """Whether a typed text is a command: not one that begins with a path or a comment, or with `//`, which is
    a message with a slash.
    """
    return _COMMAND.match(text) is not None


def is_marked(text: str) -> bool:
    """Whether a second slash says that a text is a message: it is one line and would else be a command.

    A comment of code, `// why`, or lines that begin with one, need no such mark and keep both.
    """
    return _MARKED.fullmatch(text) is not None


def message_of(text: str) -> str:
    """The message that a typed text is."""
    return text[1:] if is_marked(text) else text


def as_typed(message: str) -> str:
    """How a message is typed: put back into the prompt it must not be a command."""
    return f"/{message}" if is_command(message) or is_marked(message) else message
