"""Numbers of a JSON Schema, which the library knows as floats: what of them it would change is not taken."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from ..types import EngineError
from .schema import Nodes, Where

_LARGEST = 2**53
"""All integers up to this one are floats. Of what is said to be larger the library makes something else, and
of some it fails the program.
"""

_LARGEST_POWER = 22
"""The library reads a decimal exactly up to this power of ten behind an integer that is a float."""

_LOWER, _UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")


def keep_exact(nodes: Nodes) -> None:
    """Bring bounds of no use down to the largest number. EngineError(grammar): one can't be kept exactly."""
    for where in nodes.everywhere():
        node = nodes.at(where)
        if not isinstance(node, dict):
            continue
        for name, sign in (*((name, -1) for name in _LOWER), *((name, 1) for name in _UPPER)):
            bound: Any = node.get(name)
            if _number(bound) and abs(bound) > _LARGEST:
                if bound * sign < 0:
                    raise _refused(where, bound)
                node[name] = sign * _LARGEST
        for value in _leaves([node.get("const"), node.get("enum")]):
            if _number(value) and not _exact(value):
                raise _refused(where, value)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _leaves(value: Any) -> Iterator[Any]:
    """What a value holds that holds nothing."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (dict, list)):
            waiting += value.values() if isinstance(value, dict) else value
        else:
            yield value


def _exact(value: float) -> bool:
    """Whether the library writes the number that it is given."""
    if isinstance(value, int):
        return abs(value) <= _LARGEST
    _, digits, power = Decimal(repr(value)).as_tuple()
    integer = int("".join(map(str, digits)))
    return isinstance(power, int) and abs(power) <= _LARGEST_POWER and integer <= _LARGEST


def _refused(where: Where, value: float) -> EngineError:
    number = f"{value!r:.40}"
    return EngineError(
        "grammar",
        f"the schema can't be kept to, at {where or '/'}: {number} is too large or too precise to come "
        "exactly; a string can hold it",
    )
