"""Typed, bounded access to the values a model file declares; an error names the file and the field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from .refusal import invalid, shown

REQUIRED: Any = object()
"""Default of a field that must be there."""


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

    def get(self, name: str, default: Any = None) -> Any:
        """The raw value; JSON's null is the same as a missing field."""
        value = self.values.get(self.prefix + name)
        if value is not None:
            return value
        if default is REQUIRED:
            self.fail(name, "is missing")
        return default

    def integer(self, name: str, low: int, high: int, default: Any = REQUIRED) -> Any:
        """An integer in [low, high], or the default where the field is missing."""
        value = self.get(name, default)
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
        return Fields(self.path, {f"{name}.{key}": entry for key, entry in value.items()}, f"{name}.")

    def token_ids(self, name: str, vocabulary: int) -> list[int]:
        """One token id or a list of them; ids outside the vocabulary can never come up and are left out."""
        value = self.get(name, [])
        ids = value if isinstance(value, list) else [value]
        for entry in ids:
            if type(entry) is not int:
                self.fail(name, f"must hold token ids, not {shown(entry)}")
        return [entry for entry in ids if 0 <= entry < vocabulary]
