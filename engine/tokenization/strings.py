"""The methods of texts that templates call, bounded: `' '.join(x)`, `'{}'.format(x)`, `'%s' % x`.

Python's own formatting would read attributes of the values, and make fields of any width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from string import Formatter
from types import BuiltinMethodType
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined

from .budget import ITEM, current

_FIELD = re.compile(r"\d{0,3}|[A-Za-z]\w*")
_SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?#?0?\d{0,2}[,_]?(?:\.\d{1,2})?[bcdeEfFgGnosxX%]?")
_PERCENT = re.compile(r"%(?:\((\w+)\))?[-#0 +]*\d{0,2}(?:\.\d{1,2})?([diouxXeEfFgGcs%])")
_ROOM = 128  # most characters of a field that is no text

_SLOW_METHODS = frozenset(["lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip"])
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_SHORT = 64
"""Most characters of an argument that multiplies the work to be done or the size of the result."""


def refuse_long(length: int, what: str) -> None:
    """SecurityError: an argument that may only be short is longer."""
    if length > _SHORT:
        raise SecurityError(f"{what} of more than {_SHORT} characters")


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


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """As `text.replace`."""
    found = text.count(old) if count < 0 else min(count, text.count(old))
    current.get().check(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, count)


def _split(method: str, text: str, separator: str | None = None, maxsplit: int = -1) -> list[str]:
    """str.split or str.rsplit; makes at most one part more than a list may hold."""
    most = current.get().largest // ITEM
    split: Callable[..., list[str]] = getattr(str, method)
    return split(text, separator, min(maxsplit, most) if maxsplit >= 0 else most)


def _join(text: str, values: Iterable[str]) -> str:
    return current.get().join(values, text)


def _splitlines(text: str, keepends: bool = False) -> list[str]:
    current.get().check(ITEM * sum(map(text.count, _LINE_ENDS)))
    return text.splitlines(keepends)


def padded(method: str, text: str, width: int, *fill: str) -> str:
    """As one of the methods that make a text wider."""
    current.get().check(width)
    pad: Callable[..., str] = getattr(str, method)
    return pad(text, width, *fill)


_METHODS: dict[str, Callable[..., Any]] = {
    "format": braces,
    "join": _join,
    "replace": replace,
    "rsplit": partial(_split, "rsplit"),
    "split": partial(_split, "split"),
    "splitlines": _splitlines,
    **{name: partial(padded, name) for name in ("ljust", "rjust", "zfill")},
}


def bounded(method: BuiltinMethodType, args: Sequence[Any]) -> Callable[..., Any]:
    """A text's method as templates may call it with these arguments. Raises SecurityError."""
    name = method.__name__
    if name in _SLOW_METHODS:
        longest = max((len(arg) for arg in args if isinstance(arg, str)), default=0)
        refuse_long(longest, f"{name} with a text")
    return partial(_METHODS[name], method.__self__) if name in _METHODS else method
