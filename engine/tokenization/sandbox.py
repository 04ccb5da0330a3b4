"""A Jinja environment for templates nobody has checked: they reach no Python, and are bounded.

Three things make it safe. Attributes and methods are allowed by name, on plain values only. Operations that
could make something huge ask the `Budget` first. And the syntax tree is rewritten before it is compiled, so
that every expression that makes a value, and every turn of a loop, passes by the budget.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Joiner, Namespace

from .budget import ITEM, current
from .rewriting import COLLECT, CONCAT, KEEP, STEP, rewrite

_SHORT = 64
"""Most characters of an argument that multiplies the work to be done or the size of the result."""

# fmt: off
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset([
        "capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal",
        "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip",
        "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit",
        "rstrip", "split", "startswith", "strip", "swapcase", "title", "upper",
    ]),
    dict: frozenset(["get", "items", "keys", "values"]),
    list: frozenset(["count", "index"]),
    tuple: frozenset(["count", "index"]),
    LoopContext: frozenset([
        "changed", "cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem",
        "previtem", "revindex", "revindex0",
    ]),
}
_SLOW_METHODS = frozenset(["lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip"])
_STOCK_FILTERS = [
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last",
    "length", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort",
    "string", "unique", "upper",
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


_OWN_METHODS: dict[str, Callable[..., Any]] = {
    "join": _join,
    "replace": _replace,
    "rsplit": partial(_split, "rsplit"),
    "split": partial(_split, "split"),
}

# Filters that need the context are not evaluated while the template is compiled.


@pass_context
def _keep(context: Context, value: Any) -> Any:
    return value if isinstance(value, LoopContext) else current.get().keep(value)


@pass_context
def _collect(context: Context, value: Any) -> list[Any]:
    return current.get().collect(value)


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
            "indent": _indent_filter,
            "join": _join_filter,
            "list": _keep,
            "replace": _replace_filter,
            "safe": _keep,  # nothing is escaped
            "title": _title_filter,
            "tojson": _tojson,
            "trim": _trim_filter,
            COLLECT: _collect,
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
        """No exception for str.format: it is not among the methods."""

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
            raise SecurityError("formatting with %")
        return budget.keep(super().call_binop(context, operator, left, right))

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
