"""A Jinja environment for templates nobody has checked: they reach no Python, and are bounded.

Three things make it safe. Attributes and methods are allowed by name, on plain values only. Operations that
could make something huge ask the `Budget` first. And the syntax tree is rewritten before it is compiled, so
that every expression that makes a value, and every turn of a loop, passes by the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Joiner, Namespace

from .budget import current
from .filters import FILTERS
from .rewriting import rewrite
from .strings import bounded, percent, refuse_long

_TEST = 8  # steps

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
# fmt: on


class RaisedError(TemplateError):
    """The template itself calls `raise_exception`: it does not want this conversation."""


def _raise_exception(message: object) -> NoReturn:
    raise RaisedError(str(message))


def _strftime_now(pattern: str) -> str:
    refuse_long(len(pattern), "a time format")
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


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment templates run in, with the functions and filters of Hugging Face's chat templates.

    Whoever renders sets `current`. Compiled templates may be shared between threads.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[loopcontrols, _Generation]
        )
        self.filters = dict(FILTERS)
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
        """No exception for str.format: a call of it is a call of `strings.braces`."""

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
            refuse_long(right, "an exponent")
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
            __obj = bounded(__obj, args)
        return current.get().keep(super().call(__context, __obj, *args, **kwargs))

    def concat(self, pieces: Iterable[str]) -> str:
        """Join what a macro, a block or the template itself has written."""
        return current.get().join(pieces)
