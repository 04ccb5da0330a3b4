"""What a reply keeps to: schemas by name, from files, in a short form; regular expressions; grammars."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from .errors import UserError, did_you_mean, shown
from .files import Text, TextError, expanded, read_text
from .given_file import is_file
from .paths import data_file

CONSTRAINTS: Mapping[str, str] = {
    "schema": "the reply is JSON of this schema: JSON, a file, a name such as list or yes-no, or fields "
    "(name, age int, bio: a text)",
    "regex": "the whole reply matches this regular expression",
    "grammar": "the reply keeps to this grammar, in Lark's notation: text, or a file",
}
"""Fields of SamplingParams of the same name; at most one of them holds for a reply."""

LARGEST = 1 << 20
"""Bytes of a file; what the engine takes is less."""

TYPES = {
    "str": "string",
    "string": "string",
    "int": "integer",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "bool": "boolean",
    "boolean": "boolean",
}
"""Types of fields in the short form, that of Simon Willison's `llm`, which has the short names."""

_JSON = re.compile(r"\s*(\{|\[|(true|false)\s*$)")


class ConstraintError(UserError):
    """What a reply is to keep to cannot be read, or can't be honoured."""


def names() -> list[str]:
    """The schemas that termchat has by name."""
    return sorted(file.stem for file in data_file("schemas").glob("*.json"))


Reader = Callable[[Path, int], Text]
"""Reads a file of at most so many bytes: `read_text`, or `read_given`, which waits for who writes a pipe."""


def schema_of(text: str, read: Reader | None = read_text) -> str:
    """The JSON Schema that a text means, as JSON. ConstraintError.

    It is JSON, or else a name, or else a file (read so; None: none is meant), or else fields in the short
    form.
    """
    if _JSON.match(text):
        return text
    name = text.strip()
    if name in names():
        return _read(data_file("schemas") / f"{name}.json")
    if os.sep in name or name.endswith(".json") or (read is not None and is_file(expanded(name))):
        if read is None:
            raise ConstraintError(f"{shown(name)} is no schema: write JSON, a name or fields, not a file")
        return _kept("schema", expanded(name), read)
    return json.dumps(_fields(text), ensure_ascii=False)


def grammar_of(text: str, read: Reader = read_text) -> str:
    """The grammar that a text means: it, or what is in the file of that name. ConstraintError."""
    name = text.strip()
    single = "\n" not in name and ":" not in name
    return _kept("grammar", expanded(name), read) if single or is_file(expanded(name)) else text


def constraint_of(values: Mapping[str, Any], read: Reader | None = read_text) -> dict[str, str]:
    """What was given for a reply to keep to, as the engine takes it. ConstraintError.

    read: reads the files that are named; None: no file may be.
    """
    given = {name: values[name] for name in CONSTRAINTS if values.get(name) is not None}
    if len(given) > 1:
        raise ConstraintError(f"{' and '.join(given)} exclude each other: a reply keeps to one of them")
    for name, text in given.items():
        if not isinstance(text, str) or not text.strip():
            raise ConstraintError(f"{name} must be a text that is not empty, not {shown(text)}")
    if "schema" in given:
        return {"schema": schema_of(given["schema"], read)}
    if "grammar" in given and read is not None:
        return {"grammar": grammar_of(given["grammar"], read)}
    return given


def constrains(sampling: Mapping[str, Any]) -> bool:
    """Whether replies with these settings keep to something."""
    return bool(CONSTRAINTS.keys() & sampling.keys())


def described(sampling: Mapping[str, Any]) -> str:
    """What replies with these settings keep to, in a few words; "": to nothing."""
    kind = next(iter(CONSTRAINTS.keys() & sampling.keys()), "")
    return f"{kind} {_subject(sampling[kind])}".rstrip() if kind == "schema" else kind


@lru_cache(16)
def _subject(schema: str) -> str:
    """The name of a schema, or its fields."""
    for name in names():
        if schema == _read(data_file("schemas") / f"{name}.json"):
            return name
    try:
        fields = json.loads(schema).get("properties")
    except (ValueError, RecursionError, AttributeError):
        return ""
    return f"{{{', '.join(map(str, fields))}}}" if isinstance(fields, dict) and fields else ""


def check(sampling: Mapping[str, Any]) -> None:
    """ConstraintError: what a reply is to keep to can't be honoured, whatever the model."""
    if not constrains(sampling):
        return
    from engine import EngineError, SamplingParams, check_constraint

    try:
        check_constraint(SamplingParams(**sampling))
    except EngineError as error:
        raise ConstraintError(error.message) from error


def over(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others: what a reply keeps to goes in place of what it kept to."""
    if constrains(given):
        own = {name: value for name, value in own.items() if name not in CONSTRAINTS}
    return {**own, **given}


def parsed(text: str, reason: str, stop: object = None) -> tuple[Any, str | None]:
    """The value of a reply that is JSON, and None; or None, and why there is none.

    reason: how it ended. stop: the token or the text that ended it.
    """
    twice: list[str] = []

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if (name := named_twice(pairs)) is not None:
            twice.append(name)
        return dict(pairs)

    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=object_of)
        return (
            (None, f"the reply has two values of {shown(twice[0])} in one object") if twice else (value, None)
        )
    except (ValueError, RecursionError) as error:
        ends = {
            "length": "the limit of its tokens",
            "context": "the end of the context",
            "capacity": "the end of the KV cache",
            "aborted": "where it was stopped",
        }
        if reason == "stop" and isinstance(stop, str):
            return None, f"the reply is no complete JSON: it came to the stop text {shown(stop)}"
        if reason in ends:
            return None, f"the reply is no complete JSON: it came to {ends[reason]}"
        return None, f"the reply is no JSON: {str(error)[:200]}"


def named_twice(pairs: Sequence[tuple[str, Any]]) -> str | None:
    """A name that two members of a JSON object have; one of their values would be lost without a word."""
    known: set[str] = set()
    for name, _ in pairs:
        if name in known:
            return name
        known.add(name)
    return None


def _finite(written: str) -> float:
    if not math.isfinite(value := float(written)):
        raise ValueError(f"it holds {written[:20]}, which is no number that can be written again")
    return value


def _kept(kind: str, path: Path, read: Reader) -> str:
    """What a file of the user's says a reply is to keep to; what is wrong with it names the file."""
    text = _read(path, read)
    try:
        check({kind: text})
    except ConstraintError as error:
        raise ConstraintError(f"{path}: {error}") from error
    return text


def _read(path: Path, read: Reader = read_text) -> str:
    try:
        return read(path, LARGEST).text
    except OSError as error:
        raise ConstraintError(f"{path} cannot be read: {error.strerror}") from error
    except TextError as error:
        raise ConstraintError(f"{path} {error}") from error


def _fields(text: str) -> dict[str, Any]:
    """The schema of an object in the short form: fields between commas, or one a line. ConstraintError.

    A field is its name, its type (a text, if none is said), and behind a colon what it is about.
    """
    written = text.strip()
    parts = [part.strip() for part in (written.splitlines() if "\n" in written else written.split(","))]
    properties: dict[str, Any] = {}
    for part in filter(None, parts):
        head, _, about = part.partition(":")
        name, _, kind = head.strip().partition(" ")
        if not name or kind.strip() not in {"", *TYPES}:
            kinds = ", ".join(kind for kind in TYPES if len(kind) < 6)
            raise ConstraintError(
                f"{shown(part)} is no field of a schema: write NAME, or NAME TYPE ({kinds})"
            )
        if name in properties:
            raise ConstraintError(f"the schema has two fields {shown(name)}")
        properties[name] = {"type": TYPES[kind.strip() or "str"]}
        if about.strip():
            properties[name]["description"] = about.strip()
    if not properties:
        raise ConstraintError(f"{shown(written)} has no field: write NAME, or NAME TYPE, with commas between")
    if len(parts) == 1 and written in properties:
        near = did_you_mean(written, names(), like=0.6)
        known = f"there are {', '.join(names())}"
        hint = f"for one field of that name write '{written} str'"
        raise ConstraintError(f"no schema is called {shown(written)}; {near or known}; {hint}")
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
