"""The base of every error a user can act on, and the words in which mistakes are answered."""

from __future__ import annotations

import reprlib

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 60


class UserError(Exception):
    """One plain sentence: what happened, which file or option, what to do. Shown without a traceback."""


def shown(value: object) -> str:
    """A value out of a file or an argument as part of a sentence: cut, however long and deep it is."""
    return _brief.repr(value)
