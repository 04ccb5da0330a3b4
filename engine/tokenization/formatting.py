"""Formatting as templates ask for it: `'{}'.format(x)`, `'%s' % x`. Only plain values, only small fields.

Python's own would read attributes of the values, and make fields of any width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined

from .budget import current

_FIELD = re.compile(r"\d{0,3}|[A-Za-z]\w*")
_SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?#?0?\d{0,2}[,_]?(?:\.\d{1,2})?[bcdeEfFgGnosxX%]?")
_PERCENT = re.compile(r"%(?:\((\w+)\))?[-#0 +]*\d{0,2}(?:\.\d{1,2})?([diouxXeEfFgGcs%])")
_ROOM = 128  # most characters of a field that is no text


def _checked(value: Any) -> Any:
    """A value that may be written out, as its text where it is no number."""
    if isinstance(value, (bool, int, float)):
        return value
    if value is None or isinstance(value, (str, list, tuple, dict, Undefined)):
        budget = current.get()
        budget.check(budget.weight(value))
        return str(value)
    raise SecurityError(f"formatting a {type(value).__name__}")


def _size(value: Any) -> int:
    return _ROOM + (len(value) if isinstance(value, str) else 0)


def braces(text: str, *values: Any, **named: Any) -> str:
    """As `text.format`, without attributes, items and conversions. Raises SecurityError."""
    budget, pieces, automatic = current.get(), [], 0
    for literal, name, spec, conversion in Formatter().parse(text):
        pieces.append(literal)
        if name is None:
            continue
        if not _FIELD.fullmatch(name):
            raise SecurityError("the attribute or item in a field of a format")
        if conversion not in (None, "s") or not _SPEC.fullmatch(spec or ""):
            raise SecurityError("such a field of a format")
        if name == "":
            name, automatic = str(automatic), automatic + 1
        value = _checked(values[int(name)] if name.isdigit() else named[name])
        budget.check(_size(value))
        pieces.append(format(str(value) if conversion else value, spec or ""))
        budget.step(1)
    return budget.join(pieces)


def percent(text: str, values: Any) -> str:
    """As `text % values`, with small fields only. Raises SecurityError."""
    budget = current.get()
    fields = _PERCENT.findall(text)
    if "%" in _PERCENT.sub("", text):
        raise SecurityError("such a field of a format")
    if isinstance(values, Mapping):
        checked: Any = {key: _checked(value) for key, value in values.items()}
        largest = max(map(_size, checked.values()), default=0)
    else:
        checked = tuple(map(_checked, values)) if isinstance(values, tuple) else (_checked(values),)
        largest = max(map(_size, checked), default=0)
    budget.check(len(text) + len(fields) * largest)
    budget.step(len(fields))
    return str(text % checked)
