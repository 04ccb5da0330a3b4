"""The values a model file declares: typed, bounded, or refused with one sentence for people.

The sentence names the file and the field; whatever it quotes from the file is short and printable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ..types import EngineError

_MAX_VALUE = 60
_MAX_REASON = 600

REQUIRED: Any = object()
"""Default of a field that must be there."""


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


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """What is wrong with a file's content (ValueError) becomes the error that refuses the file."""
    try:
        yield
    except ValueError as error:
        raise invalid(path, str(error)) from None


class Fields(NamedTuple):
    """The entries of a mapping read from `path`, all under the same `prefix`."""

    path: Path
    values: Mapping[str, Any]
    prefix: str = ""

    def refuse(self, reason: str) -> NoReturn:
        """Refuse the file."""
        raise invalid(self.path, reason)

    def fail(self, name: str, reason: str) -> NoReturn:
        """Refuse the file because of one field."""
        self.refuse(f"{self.prefix}{name} {reason}")

    def has(self, name: str) -> bool:
        """Whether the field is there, even if it is null."""
        return self.prefix + name in self.values

    def get(self, name: str, default: Any = None) -> Any:
        """The raw value; JSON's null is the same as a missing field."""
        value = self.values.get(self.prefix + name)
        if value is not None:
            return value
        if default is REQUIRED:
            self.fail(name, "is missing")
        return default

    def integer(self, name: str, low: int, high: int, default: Any = REQUIRED) -> Any:
        """An integer in [low, high], or the default where the field is missing.

        GGUF files may hold it once for each layer; a list that differs between them is refused.
        """
        value = _one_of(self.get(name, default))
        if value is default:
            return default
        if type(value) is not int:
            self.fail(name, f"must be an integer, not {shown(value)}")
        if not low <= value <= high:
            self.fail(name, f"must be in [{low}, {high}], not {shown(value)}")
        return value

    def number(self, name: str, low: float, high: float, default: Any = REQUIRED) -> Any:
        """A number in [low, high] as a float, or the default where the field is missing."""
        value = self.get(name, default)
        if value is default:
            return default
        if type(value) not in (int, float):
            self.fail(name, f"must be a number, not {shown(value)}")
        if not low <= value <= high:
            self.fail(name, f"must be in [{low:g}, {high:g}], not {shown(value)}")
        return float(value)

    def boolean(self, name: str, default: Any = REQUIRED) -> Any:
        """True or false, or the default where the field is missing."""
        value = self.get(name, default)
        if value is not default and type(value) is not bool:
            self.fail(name, f"must be true or false, not {shown(value)}")
        return value

    def string(self, name: str, default: Any = REQUIRED) -> Any:
        """A string, or the default where the field is missing."""
        value = self.get(name, default)
        if value is not default and type(value) is not str:
            self.fail(name, f"must be a string, not {shown(value)}")
        return value

    def mapping(self, name: str) -> Fields | None:
        """The fields of a nested object, None where it is missing."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fail(name, f"must be an object, not {shown(value)}")
        prefix = f"{self.prefix}{name}."
        return Fields(self.path, {f"{prefix}{key}": entry for key, entry in value.items()}, prefix)

    def token_ids(self, name: str) -> tuple[int, ...]:
        """One token id or a list of them; what can't be one, as it is negative, is left out."""
        value = self.get(name, [])
        value = value.tolist() if hasattr(value, "tolist") else value
        ids = value if isinstance(value, list) else [value]
        for entry in ids:
            if type(entry) is not int:
                self.fail(name, f"must hold token ids, not {shown(entry)}")
        return tuple(entry for entry in ids if entry >= 0)


def _one_of(value: Any) -> Any:
    """The value that an array holds throughout; anything else as it is."""
    entries = set(value.tolist()) if hasattr(value, "tolist") else set()
    return entries.pop() if len(entries) == 1 else value
