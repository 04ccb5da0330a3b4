"""Random JSON Schemas that some JSON keeps to, of the keywords that replies can be held to."""

from __future__ import annotations

import random
from typing import Any

NAMES = ["name", "age", "größe", "名前", "a b", 'q"uote', "x/y", "~t", "", "back\\slash"]
PATTERNS = ["^[a-z]{1,8}$", "[0-9]+", "^(yes|no)$", "^[A-Z]\\w*$", "^.{2,5}$", "a|b"]
FORMATS = ["date", "time", "date-time", "ipv4", "uuid", "email"]


def random_schema(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    """A schema, with shared parts some of which refer to themselves."""
    shared = {f"part{index}": _schema(rng, depth - 1, []) for index in range(rng.randint(0, 2))}
    names = [*shared]
    if rng.random() < 0.3:
        items = {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}
        shared["tree"] = {"type": "object", "properties": {"below": items}, "additionalProperties": False}
        names.append("tree")
    schema = _schema(rng, depth, names)
    return {"$defs": shared, **schema} if shared else schema


def _schema(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    simple = [_string, _integer, _number, _choice, lambda rng: {"type": rng.choice(["boolean", "null"])}]
    if depth <= 0 or rng.random() < 0.2:
        return rng.choice(simple)(rng)
    kind = rng.choice(["object", "object", "array", "tuple", "anyOf", "allOf", "ref", "simple"])
    if kind == "object":
        return _object(rng, depth, names)
    if kind == "array":
        least = rng.randint(0, 2)
        return {
            "type": "array",
            "items": _schema(rng, depth - 1, names),
            "minItems": least,
            "maxItems": least + rng.randint(0, 3),
        }
    if kind == "tuple":
        items = [_schema(rng, depth - 1, names) for _ in range(rng.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": rng.randint(0, len(items))}
    if kind == "anyOf":
        return {"anyOf": [_schema(rng, depth - 1, names) for _ in range(rng.randint(1, 3))]}
    if kind == "allOf":
        return {"allOf": [{"type": "integer", "minimum": -5}, {"maximum": rng.randint(0, 50)}]}
    if kind == "ref" and names:
        return {"$ref": f"#/$defs/{rng.choice(names)}"}
    return rng.choice(simple)(rng)


def _object(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    keys = rng.sample(NAMES, rng.randint(0, 4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: _schema(rng, depth - 1, names) for key in keys},
        "required": rng.sample(keys, rng.randint(0, len(keys))),
    }
    more = rng.choice([False, False, True, {"type": "integer", "minimum": 0, "maximum": 9}])
    if more is not True:
        schema["additionalProperties"] = more
    return schema


def _string(rng: random.Random) -> dict[str, Any]:
    kind = rng.randrange(4)
    if kind == 0:
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": rng.choice(FORMATS)}
    least = rng.randint(0, 3)
    return {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 12)}


def _integer(rng: random.Random) -> dict[str, Any]:
    low = rng.randint(-1000, 1000)
    schema: dict[str, Any] = {"type": "integer", rng.choice(["minimum", "exclusiveMinimum"]): low}
    if rng.random() < 0.7:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.randint(2, 500)
    elif rng.random() < 0.5:
        schema["multipleOf"] = rng.randint(2, 9)
    return schema


def _number(rng: random.Random) -> dict[str, Any]:
    low = rng.uniform(-10, 10)
    return {"type": "number", "minimum": round(low, 2), "maximum": round(low + rng.uniform(1, 20), 2)}


def _choice(rng: random.Random) -> dict[str, Any]:
    values = ["red", "green", 1, 2.5, None, True, [1, "x"], {"a": None}, "é", 'a "b"']
    if rng.random() < 0.3:
        return {"const": rng.choice(values)}
    return {"enum": rng.sample(values, rng.randint(1, 4))}
