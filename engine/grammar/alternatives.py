"""oneOf whose parts exclude each other through references too, which the library does not look through."""

from __future__ import annotations

from itertools import combinations, islice
from typing import Any, NamedTuple

from .schema import Nodes, Where, pointer, reference_of

_REFERENCE = {"$ref", "title", "description", "default"}
"""Keywords of a schema that is another one."""

_TYPES = ("object", "array", "string", "number", "boolean", "null")

_MOST_PARTS = 300
"""Parts that are compared, each with each; where there are more it is left to the library."""

_MOST_PROPERTIES = 64
"""Properties that are looked at in each part."""

_MOST_REFERENCES = 8
"""References after each other that are followed."""

Values = frozenset[tuple[str, object]]


class _Part(NamedTuple):
    """What tells one part of a oneOf from others. values: all there are, None: not given.

    kinds: the values of properties. required: properties that an object has to have.
    """

    types: frozenset[str]
    values: Values | None
    kinds: dict[str, Values]
    required: frozenset[str]


def exclusive_to_any(nodes: Nodes) -> set[Where]:
    """Write oneOf as anyOf where no value keeps to two of its parts; the places that are written so."""
    changed = set[Where]()
    for where in [*nodes.everywhere()]:
        node = nodes.at(where)
        given = node.get("oneOf") if isinstance(node, dict) and "anyOf" not in node else None
        if not isinstance(given, list) or len(given) > _MOST_PARTS:
            continue
        parts = [_part(nodes, schema) for schema in given]
        if all(_exclude(one, other) for one, other in combinations(parts, 2)):
            node["anyOf"] = node.pop("oneOf")
            node.pop("discriminator", None)  # the library takes no circle of references beside it
            changed.add(where + pointer("anyOf"))
    return changed


def as_written(where: Where, changed: set[Where]) -> Where:
    """A place as it is called in the schema that was given."""
    for place in sorted(changed, key=len, reverse=True):
        if where.startswith(place + "/"):
            where = place.removesuffix("anyOf") + "oneOf" + where.removeprefix(place)
    return where


def _exclude(one: _Part, other: _Part) -> bool:
    """Whether certainly no value keeps to both parts."""
    types = one.types & other.types
    if not types or (one.values is not None and other.values is not None and not one.values & other.values):
        return True
    return types == {"object"} and any(
        not one.kinds[name] & other.kinds[name]
        for name in one.kinds.keys() & other.kinds.keys()
        if name in one.required or name in other.required
    )


def _part(nodes: Nodes, schema: Any) -> _Part:
    schema = _resolved(nodes, schema)
    properties, required = schema.get("properties"), schema.get("required")
    kinds: dict[str, Values] = {}
    for name, value in islice(properties.items() if isinstance(properties, dict) else (), _MOST_PROPERTIES):
        if (values := _values(_resolved(nodes, value))) is not None:
            kinds[name] = values
    names = required if isinstance(required, list) else []
    return _Part(
        _types(schema), _values(schema), kinds, frozenset(name for name in names if isinstance(name, str))
    )


def _resolved(nodes: Nodes, schema: Any) -> dict[str, Any]:
    """What a schema comes to that does no more than refer to another; empty if it does more."""
    for _ in range(_MOST_REFERENCES):
        if (place := reference_of(schema)) is None or set(schema) - _REFERENCE:
            break
        schema = nodes.at(place)
    return schema if isinstance(schema, dict) and "$ref" not in schema else {}


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """The types that a value may have."""
    said = schema.get("type")
    types = [said] if isinstance(said, str) else said
    if not isinstance(types, list) or not all(isinstance(each, str) for each in types):
        return frozenset(_TYPES)
    return frozenset("number" if each == "integer" else each for each in types)


def _values(schema: dict[str, Any]) -> Values | None:
    """All values that there are; None: they are not given, or can be written in several ways."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not all(isinstance(each, (str, bool, type(None))) for each in values):
        return None
    return frozenset((type(value).__name__, value) for value in values)
