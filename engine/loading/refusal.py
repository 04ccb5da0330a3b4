"""Refusing a file: one sentence for people. Whatever is quoted from the file is short and printable."""

from __future__ import annotations

from pathlib import Path

from ..types import EngineError

_MAX_VALUE = 60
_MAX_REASON = 600


def printable(text: str) -> str:
    """The text with escapes for what is not printable: line ends, terminal codes, direction marks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(text: str, limit: int) -> str:
    """The beginning of a text, with a sign that there is more."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shown(value: object, limit: int = _MAX_VALUE) -> str:
    """A value of an untrusted file on one short line."""
    if isinstance(value, str):
        return cut(repr(value[: 2 * limit]), limit)
    if isinstance(value, int) and not -(1 << 256) < value < 1 << 256:  # writing it out takes time
        return "a number of too many digits"
    if isinstance(value, (int, float)):
        return cut(repr(value), limit)
    return {"ndarray": "a list", "list": "a list", "dict": "an object"}.get(type(value).__name__, "no value")


def one_line(text: object, limit: int = _MAX_REASON) -> str:
    """The message of a library on one line of bounded length."""
    return printable(" ".join(str(text)[: 2 * limit].split()))[:limit]


def invalid(path: Path, reason: str, *, colon: bool = True) -> EngineError:
    """The error that refuses a file (model_invalid): its path and the reason, or without a colon, the rest of
    the sentence.
    """
    return EngineError("model_invalid", f"{printable(str(path))}{':' if colon else ''} {one_line(reason)}")
