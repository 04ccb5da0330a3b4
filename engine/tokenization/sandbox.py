"""A Jinja environment for templates nobody has checked: they reach no Python, and are bounded.

Three things make it safe. Attributes and methods are allowed by name, on plain values only. Operations that
could make something huge ask the `Budget` first. And the syntax tree is rewritten before it is compiled, so
that every expression that makes a value, and every turn of a loop, passes by the budget.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pprint import pformat
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Joiner, Namespace
from markupsafe import escape

from .budget import ITEM, current
from .formatting import braces, percent
from .rewriting import COLLECT, COLLECT_OR_NONE, CONCAT, KEEP, STEP, rewrite

_PATIENT = 512
"""Weight of a character, or what weighs as much, for filters that take their time over each."""

_TEST = 8  # steps
_SHORT = 64
"""Most characters of an argument that multiplies the work to be done or the size of the result."""

# fmt: off
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset([
        "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum",
        "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper",
        "join", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind",
        "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
        "swapcase", "title", "upper", "zfill",
    ]),
    dict: frozenset(["copy", "get", "items", "keys", "values"]),
    list: frozenset(["copy", "count", "index"]),
    tuple: frozenset(["count", "grouper", "index", "list"]),  # two of them of groupby's only
    LoopContext: frozenset([
        "changed", "cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem",
        "previtem", "revindex", "revindex0",
    ]),
}
_SLOW_METHODS = frozenset(["lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip"])
_STOCK_FILTERS = [
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items",
    "last", "length", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr",
    "sort", "string", "unique", "upper",
]
# fmt: on


class RaisedError(TemplateError):
    """The template itself calls `raise_exception`: it does not want this conversation."""


def _raise_exception(message: object) -> NoReturn:
    raise RaisedError(str(message))


def _short(length: int, what: str) -> None:
    if length > _SHORT:
        raise SecurityError(f"{what} of more than {_SHORT} characters")


def _strftime_now(pattern: str) -> str:
    _short(len(pattern), "a time format")
    return datetime.now().strftime(pattern)


class _Namespace(Namespace):
    """Not printable: namespaces may hold each other many times over."""

    def __repr__(self) -> str:
        return "namespace"


class _Generation(Extension):
    """`{% generation %}`, which marks what the model says, for training. Here it only encloses."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The enclosed statements."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
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


def _padded(method: str, text: str, width: int, *fill: str) -> str:
    current.get().check(width)
    pad: Callable[..., str] = getattr(str, method)
    return pad(text, width, *fill)


_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_OWN_METHODS: dict[str, Callable[..., Any]] = {
    "format": braces,
    "join": _join,
    "replace": _replace,
    "rsplit": partial(_split, "rsplit"),
    "split": partial(_split, "split"),
    "splitlines": _splitlines,
    **{name: partial(_padded, name) for name in ("ljust", "rjust", "zfill")},
}

# Filters that need the context are not evaluated while the template is compiled.


@pass_context
def _keep(context: Context, value: Any) -> Any:
    return value if isinstance(value, LoopContext) else current.get().keep(value)


@pass_context
def _collect(context: Context, value: Any) -> list[Any]:
    return current.get().collect(value)


@pass_context
def _collect_or_none(context: Context, value: Any) -> list[Any]:
    return current.get().collect(value) if value else []


@pass_context
def _step(context: Context, count: int) -> None:
    current.get().step(count)


@pass_context
def _concat(context: Context, values: list[Any]) -> str:
    return current.get().join(map(str, values))


@pass_context
def _join_filter(context: Context, value: list[Any], d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        value = [context.environment.getitem(item, attribute) for item in value]
    return current.get().join(map(str, value), str(d))


@pass_context
def _replace_filter(context: Context, text: Any, old: Any, new: Any, count: int | None = None) -> str:
    return _replace(str(text), str(old), str(new), -1 if count is None else count)


@pass_context
def _trim_filter(context: Context, text: Any, chars: str | None = None) -> str:
    _short(len(chars or ""), "characters to trim")
    return str(text).strip(chars)


@pass_context
def _title_filter(context: Context, text: Any) -> str:
    current.get().check(ITEM * len(str(text)))  # it makes a list of words
    titled: str = FILTERS["title"](str(text))
    return titled


@pass_context
def _indent_filter(
    context: Context, text: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    _short(width if isinstance(width, int) else len(width), "an indentation")
    unit = width if isinstance(width, str) else " " * width
    current.get().check(len(str(text)) + len(unit) * (str(text).count("\n") + 1))
    indented: str = FILTERS["indent"](str(text), unit, first, blank)
    return indented


@pass_context
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
        _short(int(indent), "an indentation")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return current.get().join(encoder.iterencode(value))


@pass_context
def _format_filter(context: Context, text: Any, *values: Any, **named: Any) -> str:
    return percent(str(text), named or values)


@pass_context
def _center_filter(context: Context, text: Any, width: int = 80) -> str:
    return _padded("center", str(text), width)


@pass_context
def _escape_filter(context: Context, text: Any) -> str:
    current.get().check(5 * len(str(text)))
    return str(escape(str(text)))


@pass_context
def _wordcount_filter(context: Context, text: Any) -> int:
    return sum(1 for _ in re.finditer(r"\w+", str(text)))


@pass_context
def _wordwrap_filter(
    context: Context,
    text: Any,
    width: int = 79,
    break_long_words: bool = True,
    wrapstring: str | None = None,
    break_on_hyphens: bool = True,
) -> str:
    _short(len(wrapstring or ""), "the end of a line")
    current.get().check(_PATIENT * len(str(text)))
    wrap: Callable[..., str] = FILTERS["wordwrap"]
    return wrap(context.environment, str(text), width, break_long_words, wrapstring, break_on_hyphens)


@pass_context
def _pprint_filter(context: Context, value: Any) -> str:
    budget = current.get()
    budget.check(_PATIENT * budget.weight(value))
    return pformat(value)


@pass_context
def _round_filter(context: Context, value: Any, precision: int = 0, method: str = "common") -> float:
    _short(abs(precision), "a precision")
    rounded: float = FILTERS["round"](value, precision, method)
    return rounded


@pass_context
def _sum_filter(context: Context, values: list[Any], attribute: str | None = None, start: float = 0) -> float:
    if attribute is not None:
        values = [context.environment.getitem(item, attribute) for item in values]
    if not all(isinstance(value, (int, float)) for value in (*values, start)):
        raise SecurityError("a sum of anything but numbers")
    return sum(values, start)


@pass_context
def _batch_filter(context: Context, values: list[Any], linecount: int, fill_with: Any = None) -> list[Any]:
    current.get().check(ITEM * linecount)
    return list(FILTERS["batch"](values, linecount, fill_with))


@pass_context
def _slice_filter(context: Context, values: list[Any], slices: int, fill_with: Any = None) -> list[Any]:
    current.get().check(ITEM * slices)
    return list(FILTERS["slice"](context.eval_ctx, values, slices, fill_with))


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment templates run in, with the functions and filters of Hugging Face's chat templates.

    Whoever renders sets `current`. Compiled templates may be shared between threads.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[loopcontrols, _Generation]
        )
        self.filters = {name: FILTERS[name] for name in _STOCK_FILTERS} | {
            "batch": _batch_filter,
            "center": _center_filter,
            "e": _escape_filter,
            "escape": _escape_filter,
            "format": _format_filter,
            "indent": _indent_filter,
            "join": _join_filter,
            "list": _keep,
            "pprint": _pprint_filter,
            "replace": _replace_filter,
            "round": _round_filter,
            "safe": _keep,  # nothing is escaped
            "slice": _slice_filter,
            "sum": _sum_filter,
            "title": _title_filter,
            "tojson": _tojson,
            "trim": _trim_filter,
            "wordcount": _wordcount_filter,
            "wordwrap": _wordwrap_filter,
            COLLECT: _collect,
            COLLECT_OR_NONE: _collect_or_none,
            CONCAT: _concat,
            KEEP: _keep,
            STEP: _step,
        }
        self.globals = {
            "dict": dict,
            "joiner": Joiner,
            "namespace": _Namespace,
            "raise_exception": _raise_exception,
            "range": self.globals["range"],
            "strftime_now": _strftime_now,
        }

    def prepare(self, source: str) -> nodes.Template:
        """Parse a template and rewrite its tree. Raises SecurityError, TemplateSyntaxError."""
        return rewrite(self.parse(source))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read this attribute."""
        if attr.startswith("_"):
            return False
        if isinstance(obj, Namespace):
            return True
        return any(isinstance(obj, kind) and attr in names for kind, names in _METHODS.items())

    def wrap_str_format(self, value: Any) -> None:
        """No exception for str.format: a call of it is a call of `braces`."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Refuse at once; Jinja would go on until the value is used."""
        raise SecurityError(f"the attribute {attribute!r} of a {type(obj).__name__}")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """A binary operator."""
        budget = current.get()
        if operator == "+":
            return budget.add(left, right)
        if operator == "*":
            budget.check_product(left, right)
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            _short(right, "an exponent")
        elif operator == "%" and isinstance(left, str):
            return budget.keep(percent(left, right))
        return budget.keep(super().call_binop(context, operator, left, right))

    def call_filter(
        self,
        name: str,
        value: Any,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        context: Context | None = None,
        eval_ctx: EvalContext | None = None,
    ) -> Any:
        """A filter that `map` applies to each value."""
        return current.get().keep(super().call_filter(name, value, args, kwargs, context, eval_ctx))

    def call_test(
        self,
        name: str,
        value: Any,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        context: Context | None = None,
        eval_ctx: EvalContext | None = None,
    ) -> Any:
        """A test that `select` and its like put each value to."""
        current.get().step(_TEST)
        return super().call_test(name, value, args, kwargs, context, eval_ctx)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """A call of a function, macro or method."""
        if isinstance(__obj, BuiltinMethodType) and isinstance(__obj.__self__, str):
            name = __obj.__name__
            if name in _SLOW_METHODS:
                _short(
                    max((len(arg) for arg in args if isinstance(arg, str)), default=0), f"{name} with a text"
                )
            if name in _OWN_METHODS:
                __obj = partial(_OWN_METHODS[name], __obj.__self__)
        return current.get().keep(super().call(__context, __obj, *args, **kwargs))

    def concat(self, pieces: Iterable[str]) -> str:
        """Join what a macro, a block or the template itself has written."""
        return current.get().join(pieces)
