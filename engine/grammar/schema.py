"""A JSON Schema as a tree of places (JSON pointers, RFC 6901): its parts, its depth, what is not taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from ..types import EngineError, shown

Where = str
"""A place in a schema as a JSON pointer; "" is all of it."""

_ONE = (
    "additionalProperties",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
)
_LIST = ("prefixItems", "allOf", "anyOf", "oneOf", "items")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_SHARED = ("$defs", "definitions")

_MOST_DIGITS = 9
"""Of a number in a place: more than any list here has, and Python reads no number of thousands of digits."""

_IDLE = {"uniqueItems": False, "unevaluatedProperties": True, "unevaluatedItems": True, "not": False}
"""Keywords with the value that asks for nothing."""

_ANY_TEXT = ("password", "binary", "path", "file-path", "directory-path")
"""Formats of OpenAPI and of pydantic that every text has."""

_REFERENCES = ("$dynamicRef", "$recursiveRef")
"""Keywords of JSON Schema that the library takes for annotations."""


def parse(text: str) -> Any:
    """The schema of a text. Raises EngineError(grammar)."""
    try:
        schema = json.loads(text, parse_constant=_no_number, parse_float=_number, parse_int=_integer)
        json.dumps(schema, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # of an escape; no reply can hold it
        half = ord(error.object[error.start])
        raise EngineError("grammar", f"the schema holds half of a surrogate pair: \\u{half:04x}") from None
    except RecursionError:
        raise EngineError("grammar", "the schema is nested too deeply") from None
    except ValueError as error:
        raise EngineError("grammar", f"the schema is no JSON: {error}") from None
    if not isinstance(schema, (dict, bool)):
        raise EngineError("grammar", f"a schema is a JSON object, not {shown(schema)}")
    return schema


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _number(written: str) -> float:
    """A number; 2.0 is 2, also where JSON Schema asks for an integer."""
    value = float(written)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _integer(written: str) -> int:
    try:
        return int(written)
    except ValueError:
        raise ValueError(f"it holds a number of {len(written)} digits") from None


def pointer(*names: str | int) -> Where:
    """The place below another one that these names lead to."""
    return "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in names)


def reference_of(schema: Any) -> Where | None:
    """The place that a schema refers to, as a pointer from the root."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    return unquote(reference[1:]) if isinstance(reference, str) and reference.startswith("#/") else None


class Nodes:
    """The schemas that a schema is made of."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root

    def at(self, where: Where) -> Any:
        """What is at a place; None if there is nothing."""
        value: Any = self.root
        for name in where.split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict):
                value = value.get(name)
            elif isinstance(value, list) and name.isdecimal() and len(name) <= _MOST_DIGITS:
                place = int(name)
                value = value[place] if place < len(value) else None
            else:
                return None
        return value

    def parts(self, where: Where) -> Iterator[Where]:
        """The places of the schemas that the one at a place applies, by reference too."""
        yield from self._inside(where, _NAMED)
        if (place := self.reference(where)) is not None:
            yield place

    def reference(self, where: Where) -> Where | None:
        """The place that the schema at another one refers to, as a pointer from the root."""
        return reference_of(self.at(where))

    def below(self, where: Where) -> list[Where]:
        """The place itself and those of all schemas inside the one there, also those kept for reference."""
        found = [where]
        for place in found:
            found += self._inside(place, (*_NAMED, *_SHARED))
        return found

    def _inside(self, where: Where, named: tuple[str, ...]) -> Iterator[Where]:
        node = self.at(where)
        if not isinstance(node, dict):
            return
        for name in named:
            if isinstance(entries := node.get(name), dict):
                yield from (where + pointer(name, key) for key in entries)
        for name in _LIST:
            if isinstance(entries := node.get(name), list):
                yield from (where + pointer(name, index) for index in range(len(entries)))
        for name in _ONE:
            if isinstance(node.get(name), dict):
                yield where + pointer(name)

    def alone(self, where: Where) -> dict[str, Any] | None:
        """The schema at a place with what it may refer to; None if it is false."""
        node = self.at(where)
        if isinstance(node, dict):
            return {name: self.root[name] for name in _SHARED if name in self.root} | node
        return None if node is False else {}

    def everywhere(self) -> Iterator[Where]:
        """All schemas, those for reference too, each once."""
        seen, waiting = set[Where](), [""]
        while waiting:
            where = waiting.pop()
            if where in seen:
                continue
            seen.add(where)
            yield where
            waiting += self.parts(where)


def depth(nodes: Nodes) -> int:
    """How many schemas are inside each other at most: references may follow each other in any order."""
    places = [*nodes.everywhere()]
    owners = {"", *(nodes.reference(where) for where in places)}
    below: dict[Where, int] = {}
    for where in places:
        owner = where
        while owner not in owners:
            owner = owner.rpartition("/")[0]
        below[owner] = max(below.get(owner, 0), where.count("/") - owner.count("/") + 1)
    return sum(below.values())


def leave_out_idle(nodes: Nodes) -> None:
    """Take out what asks for nothing, but has the library refuse a schema, or pass over other parts of it."""
    for where in nodes.everywhere():
        node = nodes.at(where)
        if not isinstance(node, dict):
            continue
        for name, value in _IDLE.items():
            if node.get(name) is value:
                del node[name]
        if node.get("format") in _ANY_TEXT:
            del node["format"]
        if "prefixItems" in node:
            node.pop("additionalItems", None)


def supported(nodes: Nodes) -> None:
    """EngineError(grammar): the schema says something that the library would pass over."""
    for where in nodes.everywhere():
        node = nodes.at(where)
        for name in _REFERENCES:
            if isinstance(node, dict) and name in node:
                message = f"the library does not support {name}"
                raise EngineError("grammar", f"the schema can't be kept to, at {where or '/'}: {message}")
