"""The filters of chat templates, as in Jinja and Hugging Face's, bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pprint import pformat
from typing import Any

from jinja2 import pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS as JINJA
from jinja2.runtime import Context, LoopContext
from markupsafe import escape

from .budget import ITEM, current
from .rewriting import COLLECT, COLLECT_OR_NONE, CONCAT, KEEP, STEP
from .strings import padded, percent, refuse_long, replace

_PATIENT = 512
"""Weight of a character, or what weighs as much, for filters that take their time over each."""

# fmt: off
_STOCK_FILTERS = [
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items",
    "last", "length", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr",
    "sort", "string", "unique", "upper",
]
# fmt: on


def _keep(context: Context, value: Any) -> Any:
    return value if isinstance(value, LoopContext) else current.get().keep(value)


def _collect(context: Context, value: Any) -> list[Any]:
    return current.get().collect(value)


def _collect_or_none(context: Context, value: Any) -> list[Any]:
    return current.get().collect(value) if value else []


def _step(context: Context, count: int) -> None:
    current.get().step(count)


def _concat(context: Context, values: list[Any]) -> str:
    return current.get().join(map(str, values))


def _join(context: Context, value: list[Any], d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        value = [context.environment.getitem(item, attribute) for item in value]
    return current.get().join(map(str, value), str(d))


def _replace(context: Context, text: Any, old: Any, new: Any, count: int | None = None) -> str:
    return replace(str(text), str(old), str(new), -1 if count is None else count)


def _trim(context: Context, text: Any, chars: str | None = None) -> str:
    refuse_long(len(chars or ""), "characters to trim")
    return str(text).strip(chars)


def _title(context: Context, text: Any) -> str:
    current.get().check(ITEM * len(str(text)))  # it makes a list of words
    titled: str = JINJA["title"](str(text))
    return titled


def _indent(
    context: Context, text: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    refuse_long(width if isinstance(width, int) else len(width), "an indentation")
    unit = width if isinstance(width, str) else " " * width
    current.get().check(len(str(text)) + len(unit) * (str(text).count("\n") + 1))
    indented: str = JINJA["indent"](str(text), unit, first, blank)
    return indented


def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As Hugging Face's, not as Jinja's, which escapes for HTML."""
    if indent is not None:
        refuse_long(int(indent), "an indentation")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return current.get().join(encoder.iterencode(value))


def _format(context: Context, text: Any, *values: Any, **named: Any) -> str:
    return percent(str(text), named or values)


def _center(context: Context, text: Any, width: int = 80) -> str:
    return padded("center", str(text), width)


def _escape(context: Context, text: Any) -> str:
    current.get().check(5 * len(str(text)))
    return str(escape(str(text)))


def _wordcount(context: Context, text: Any) -> int:
    return sum(1 for _ in re.finditer(r"\w+", str(text)))


def _wordwrap(
    context: Context,
    text: Any,
    width: int = 79,
    break_long_words: bool = True,
    wrapstring: str | None = None,
    break_on_hyphens: bool = True,
) -> str:
    refuse_long(len(wrapstring or ""), "the end of a line")
    current.get().check(_PATIENT * len(str(text)))
    wrap: Callable[..., str] = JINJA["wordwrap"]
    return wrap(context.environment, str(text), width, break_long_words, wrapstring, break_on_hyphens)


def _pprint(context: Context, value: Any) -> str:
    budget = current.get()
    budget.check(_PATIENT * budget.weight(value))
    return pformat(value)


def _round(context: Context, value: Any, precision: int = 0, method: str = "common") -> float:
    refuse_long(abs(precision), "a precision")
    rounded: float = JINJA["round"](value, precision, method)
    return rounded


def _sum(context: Context, values: list[Any], attribute: str | None = None, start: float = 0) -> float:
    if attribute is not None:
        values = [context.environment.getitem(item, attribute) for item in values]
    if not all(isinstance(value, (int, float)) for value in (*values, start)):
        raise SecurityError("a sum of anything but numbers")
    return sum(values, start)


def _batch(context: Context, values: list[Any], linecount: int, fill_with: Any = None) -> list[Any]:
    current.get().check(ITEM * linecount)
    return list(JINJA["batch"](values, linecount, fill_with))


def _slice(context: Context, values: list[Any], slices: int, fill_with: Any = None) -> list[Any]:
    current.get().check(ITEM * slices)
    return list(JINJA["slice"](context.eval_ctx, values, slices, fill_with))


_OWN_FILTERS: dict[str, Callable[..., Any]] = {
    "batch": _batch,
    "center": _center,
    "e": _escape,
    "escape": _escape,
    "format": _format,
    "indent": _indent,
    "join": _join,
    "list": _keep,
    "pprint": _pprint,
    "replace": _replace,
    "round": _round,
    "safe": _keep,  # nothing is escaped
    "slice": _slice,
    "sum": _sum,
    "title": _title,
    "tojson": _tojson,
    "trim": _trim,
    "wordcount": _wordcount,
    "wordwrap": _wordwrap,
    COLLECT: _collect,
    COLLECT_OR_NONE: _collect_or_none,
    CONCAT: _concat,
    KEEP: _keep,
    STEP: _step,
}
# Filters that need the context are not evaluated while the template is compiled.
FILTERS = {name: JINJA[name] for name in _STOCK_FILTERS}
FILTERS |= {name: pass_context(function) for name, function in _OWN_FILTERS.items()}
