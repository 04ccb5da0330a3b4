"""TOML files that a person writes: settings, models, themes. One sentence says what is wrong."""

from __future__ import annotations

import reprlib
import tomllib
from pathlib import Path
from typing import Any

from .files import LARGEST_TEXT, TextError, read_text

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 60


class TomlError(TextError):
    """A text that is not TOML, for this reason."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"is not valid TOML: {reason}")
        self.reason = reason


def read_toml(file: Path, largest: int = LARGEST_TEXT) -> dict[str, Any]:
    """The content of a file. OSError; TextError: a sentence that goes on from the file's name."""
    return parse_toml(read_text(file, largest).text)


def parse_toml(text: str) -> dict[str, Any]:
    """The content of a text. TomlError."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise TomlError("it is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits is no TOMLDecodeError
        raise TomlError(error) from error


def shown(value: object) -> str:
    """A value out of such a file as part of a sentence: cut, however long and deep it is."""
    return _brief.repr(value)
