"""Replies keep to JSON Schemas: what is written validates, and what can't be kept to is refused."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine import EngineError, SamplingParams, check_constraint
from engine.grammar.grammars import Grammars
from engine.tokenization import load_tokenizer
from grammar_walks import allowed, constraint_of, walk
from random_schemas import random_schema

SUITE = Path(__file__).with_name("json_schema_suite.json")
ENDS = {257}
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER


@pytest.fixture(scope="module")
def grammars(tiny_tokenizer: Path) -> Grammars:
    return Grammars(load_tokenizer(tiny_tokenizer), 258, frozenset(ENDS))


@pytest.fixture(scope="module")
def closers(grammars: Grammars) -> set[int]:
    return set(grammars.prepare().tokens('"}],'))


def test_300_random_schemas_are_kept_to(grammars: Grammars, closers: set[int]) -> None:
    """Every reply that ends parses and validates; tokens without a choice are those that the masks allow."""
    tokens = grammars.prepare().tokens
    ended = 0
    for seed in range(300):
        schema = random_schema(random.Random(seed))
        validator = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)
        for attempt in range(2):
            how = {"ends": ENDS, "closers": closers}
            ids, end = walk(constraint_of(grammars, schema=schema), (seed, attempt), **how)  # type: ignore[arg-type]
            again = walk(constraint_of(grammars, schema=schema), (seed, attempt), forced=True, **how)  # type: ignore[arg-type]
            assert again == (ids, end), (seed, schema)
            if end:
                ended += 1
                errors = [*validator.iter_errors(json.loads(tokens.text(ids)))]
                assert not errors, (seed, schema, tokens.text(ids), errors)
    assert ended > 540


SPOILED: list[tuple[str, Any]] = [
    ("not", {"type": "string"}),
    ("uniqueItems", True),
    ("contains", {"type": "string"}),
    ("propertyNames", {"pattern": "^a"}),
    ("if", {"type": "string"}),
    ("unevaluatedProperties", False),
    ("dependentRequired", {"a": ["b"]}),
    ("$ref", "https://example.com/schema.json"),
    ("$dynamicRef", "#node"),
    ("type", "strnig"),
    ("pattern", "("),
    ("format", "no-such-format"),
    ("enum", []),
]


def test_what_can_t_be_kept_to_is_refused_with_its_place(grammars: Grammars) -> None:
    """One keyword is put into a random place of 60 random schemas."""
    places = Counter[int]()
    for seed in range(60):
        rng = random.Random(f"spoiled {seed}")
        keyword, value = SPOILED[seed % len(SPOILED)]
        inner: Any = (
            {keyword: value} if keyword in ("type", "enum", "$ref") else {"type": "string", keyword: value}
        )
        if keyword in ("uniqueItems", "contains"):
            inner["type"] = "array"
        elif keyword in ("propertyNames", "unevaluatedProperties", "dependentRequired"):
            inner["type"] = "object"
        where = ""
        for _ in range(rng.randint(0, 4)):
            if rng.random() < 0.5:
                name = rng.choice(["a", "x/y", "größe"])
                inner = {"type": "object", "properties": {name: inner}, "required": [name]}
                where = f"/properties/{name.replace('/', '~1')}{where}"
            else:
                inner, where = {"type": "array", "items": inner, "minItems": 1}, f"/items{where}"
        with pytest.raises(EngineError) as caught:
            constraint_of(grammars, schema=inner)
        assert caught.value.code == "grammar"
        assert f"at {where or '/'}: " in caught.value.message, (seed, inner, caught.value.message)
        assert "\n" not in caught.value.message
        places[where.count("/")] += 1
    assert len(places) > 4


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (False, "no JSON keeps to it"),
        ("{", "no JSON"),
        ("[1]", "a JSON object"),
        ('{"const": NaN}', "no JSON number"),
        ('{"const": "\\ud800"}', "half of a surrogate pair: \\ud800"),
        ('{"$ref": "#/$defs/\\ud800", "$defs": {"\\ud800": {}}}', "half of a surrogate pair: \\ud800"),
        ('{"maximum": 1' + "0" * 5000 + "}", "it holds a number of 5001 digits"),
        ("[" * 50_000, "nested too deeply"),
        ('{"anyOf":[' * 3000 + "{}" + "]}" * 3000, "nested too deeply"),
        ('{"type":"array","items":' * 400 + "{}" + "}" * 400, "can't be read"),
        ({"description": "x" * 10_000_000}, "10000019 characters; at most 131072"),
        ({"$ref": "#"}, "no text keeps to the schema"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "no text"),
        ({"$ref": "#/$defs/missing"}, "there is nothing at"),
        ({"allOf": [{}], "$ref": "#/allOf/1"}, "there is nothing at"),
        ({"allOf": [{}], "$ref": "#/allOf/" + "9" * 5000}, "array index '9999"),
        (
            {"properties": {"a": {"$ref": "http://x/y"}}},
            "at /properties/a: $ref to 'http://x/y', which is not in the schema; put that below $defs",
        ),
        ({"$ref": "other.json#/a"}, "at /: $ref to 'other.json', which is not in the schema"),
        (
            {
                "$ref": "#/$defs/a0",
                "$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(3000)} | {"a3000": {}},
            },
            "levels deep",
        ),
        (
            {
                "type": "object",
                "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 3}},
                "required": ["n"],
            },
            "at /properties/n: minimum",
        ),
        ({"type": "string", "minLength": 5, "maxLength": 3}, "at /: "),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf whose parts overlap"),
        ({"x-guidance": {"lenient": True}, "not": {}}, "does not support not"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_hostile_or_impossible_schema_is_refused(grammars: Grammars, schema: Any, says: str) -> None:
    with pytest.raises(EngineError) as caught:
        constraint_of(grammars, schema=schema)
    assert caught.value.code == "grammar"
    assert says in caught.value.message
    assert len(caught.value.message) < 600
    assert "\n" not in caught.value.message


def _chain(following: str, names: str | None = None, keyword: str = "") -> dict[str, Any]:
    """2000 schemas, each no more than a reference to the next, as this writes it; named by a keyword."""
    named = [{keyword: names.format(i)} if names else {} for i in range(2001)]
    return {f"a{i}": {**named[i], "$ref": following.format(i + 1)} for i in range(2000)} | {
        "a2000": named[-1]
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a0", "$defs": _chain("#/$defs/%61{}")},
        {"$ref": "#/$defs/a0", "$defs": _chain("#/%24defs/a{}")},
        {"$ref": "#/all/parts/a0", "all": {"parts": _chain("#/all/parts/a{}")}},
        {"$ref": "#/$defs/a0", "$defs": _chain("x#/$defs/a{}"), "$id": "http://h/x"},
        {"$ref": "#/$defs/a0", "$defs": _chain("n:x#/$defs/a{}"), "$id": "n:x"},
        {"$ref": "#p0", "$defs": _chain("#p{}", "p{}", "$anchor")},
        {"$ref": "p0", "$defs": _chain("p{}", "p{}", "$id")},
    ],
    ids=["escaped", "escaped-parent", "other-place", "identifier", "urn", "anchors", "identifiers"],
)
def test_depth_is_told_however_references_are_written(schema: dict[str, Any]) -> None:
    """The library recurses as deep as that, and ends the program."""
    with pytest.raises(EngineError, match="levels deep"):
        check_constraint(SamplingParams(schema=schema))


@pytest.mark.parametrize(
    ("reference", "others"),
    [
        ("#/$defs/größe", {"$defs": {"größe": {"const": 42}}}),
        ("#/$defs/gr%C3%B6%C3%9Fe", {"$defs": {"größe": {"const": 42}}}),
        ("#/$defs/a~1b%25[c] d", {"$defs": {"a/b%[c] d": {"const": 42}}}),
        ("#/parts/all/a", {"parts": {"all": {"a": {"const": 42}}}}),
        ("#here", {"$defs": {"a": {"$anchor": "here", "const": 42}}}),
        ("sub", {"$id": "http://h/all", "$defs": {"a": {"$id": "sub", "const": 42}}}),
        ("http://h/all#/$defs/a", {"$id": "http://h/all", "$defs": {"a": {"const": 42}}}),
        (
            "sub#/$defs/b",
            {
                "$id": "http://h/all",
                "$defs": {
                    "a": {"$id": "sub", "$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"const": 42}}},
                    "c": {"const": 5},
                },
            },
        ),
    ],
)
def test_references_of_every_kind_lead_where_they_should(
    grammars: Grammars, reference: str, others: dict[str, Any]
) -> None:
    constraint = constraint_of(grammars, schema={"allOf": [{"$ref": reference}], **others})
    (first,) = allowed(constraint)
    assert grammars.prepare().tokens.text(first) == "4"


def test_the_public_suite_s_supported_part_is_kept_to(grammars: Grammars, closers: set[int]) -> None:
    """No text that a schema forbids is possible, random replies validate, and the rest is refused."""
    tokens = grammars.prepare().tokens
    taken = refused = possible = ended = 0
    for group in json.loads(SUITE.read_text())["groups"]:
        schema = group["schema"]
        try:
            constraint_of(grammars, schema=schema)
        except EngineError as error:
            refused += error.code == "grammar"
            continue
        taken += 1
        for instance, valid in group["tests"]:
            ids = tokens(json.dumps(instance, ensure_ascii=False))
            matcher = constraint_of(grammars, schema=schema).matcher
            accepted = matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()
            assert valid or not accepted, (group["description"], instance)
            possible += accepted
        how: Any = {"ends": ENDS, "closers": closers, "most": 200}
        ids, end = walk(constraint_of(grammars, schema=schema), group["description"], **how)
        if end:
            ended += 1
            jsonschema.Draft202012Validator(schema).validate(json.loads(tokens.text(ids)))
    assert taken >= 164
    assert taken + refused == 368
    assert possible >= 240
    assert ended >= 140


KINDS: dict[str, Any] = {
    name: {
        "type": "object",
        "properties": {"kind": {"type": "string", "const": name}, "size": {"type": "integer"}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    for name in ("cat", "dog")
}
LISTS = {"type": "object", "properties": {"kind": {"enum": ["dog", "list"]}}, "required": ["kind"]}


def _either(*names: str) -> dict[str, Any]:
    return {
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in names],
        "discriminator": {"propertyName": "kind"},
    }


@pytest.mark.parametrize("beside", [{}, {"discriminator": {"propertyName": "kind"}}], ids=str)
def test_alternatives_that_a_property_tells_apart_may_be_references(
    grammars: Grammars, closers: set[int], beside: dict[str, Any]
) -> None:
    """As zod and pydantic write a union with a discriminator."""
    list_ = {**LISTS, "properties": {"kind": {"const": "list"}, "items": {"type": "array", "maxItems": 2}}}
    list_["properties"]["items"]["items"] = _either("cat", "list") | beside
    schema = {
        **_either("cat", "dog", "list"),
        "$defs": {**KINDS, "list": {**list_, "additionalProperties": False}},
    }
    tokens, ended = grammars.prepare().tokens, 0
    for seed in range(20):
        how: Any = {"ends": ENDS, "closers": closers}
        ids, end = walk(constraint_of(grammars, schema=schema), seed, **how)
        ended += end
        if end:
            jsonschema.Draft202012Validator(schema).validate(json.loads(tokens.text(ids)))
    assert ended > 10


@pytest.mark.parametrize(
    ("parts", "defs", "where"),
    [
        (("dog", "list"), {**KINDS, "list": LISTS}, "/properties/a"),
        (("cat", "dog"), {name: {**KINDS[name], "required": []} for name in KINDS}, "/properties/a"),
        (
            ("cat", "dog"),
            {name: {**KINDS[name], "type": ["object", "null"]} for name in KINDS},
            "/properties/a",
        ),
        (("cat", "x"), {**KINDS, "x": {"const": "x", "not": {}}}, "/$defs/x"),
    ],
)
def test_alternatives_that_overlap_are_refused_where_they_are(
    grammars: Grammars, parts: tuple[str, ...], defs: dict[str, Any], where: str
) -> None:
    schema = {"type": "object", "properties": {"a": _either(*parts)}, "required": ["a"], "$defs": defs}
    with pytest.raises(EngineError, match=f"at {re.escape(where)}: the library does not support (oneOf|not)"):
        constraint_of(grammars, schema=schema)


def test_a_place_below_alternatives_is_called_as_it_was_given(grammars: Grammars) -> None:
    inner = {"oneOf": [{"type": "integer"}, {"type": "string", "not": {}}]}
    outer = {"oneOf": [{"type": "boolean"}, {"type": "array", "items": inner}]}
    with pytest.raises(EngineError, match="at /oneOf/1/items/oneOf/1: the library does not support not"):
        constraint_of(grammars, schema=outer)


@pytest.mark.parametrize("number", [0, 2**53, -(2**53), 1e22, -0.1, 5e-22, 1234567.12345678, 9007199254740.5])
def test_numbers_come_exactly(grammars: Grammars, number: float) -> None:
    (first,) = allowed(constraint := constraint_of(grammars, schema={"const": {"n": [number]}}))
    constraint.advance(first)
    text = grammars.prepare().tokens.text([*first, *constraint.forced(100)])
    assert json.loads(text) == {"n": [number]}


@pytest.mark.parametrize(
    "number", [2**53 + 1, 2**63, 2**64, 10**300, -(2**63), -(2**64), 123456789.123456789, 1.7e-217, 1e300]
)
def test_a_number_that_would_not_come_exactly_is_refused(number: float) -> None:
    """The lowest integer of 64 bits had the library end the program."""
    for schema in ({"const": number}, {"enum": ["a", number]}, {"const": {"a": [number]}}):
        with pytest.raises(EngineError, match=r"at /properties/b: .* too large or too precise"):
            check_constraint(SamplingParams(schema={"properties": {"b": schema}}))


def test_bounds_of_64_bits_are_brought_down_to_what_is_exact(grammars: Grammars, closers: set[int]) -> None:
    schema = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
    tokens = grammars.prepare().tokens
    for number, fits in [(2**53, True), (-(2**53), True), (2**64, False), (-(2**64), False)]:
        matcher = constraint_of(grammars, schema=schema).matcher
        ids = tokens(str(number))
        assert (matcher.try_consume_tokens(ids) == len(ids)) is fits
    for schema in (
        {"minimum": 10**20},
        {"exclusiveMaximum": -(10**20)},
        {"type": "number", "minimum": 1e300},
    ):
        with pytest.raises(EngineError, match="too large or too precise"):
            constraint_of(grammars, schema=schema)


def test_keywords_that_ask_for_nothing_are_no_obstacle(grammars: Grammars) -> None:
    schema = {
        "type": "array",
        "prefixItems": [{"type": "integer"}],
        "items": False,
        "additionalItems": False,
        "minItems": 1,
        "uniqueItems": False,
        "unevaluatedItems": True,
        "not": False,
    }
    secret = {"type": "string", "format": "password", "maxLength": 5}
    assert allowed(constraint_of(grammars, schema=secret)) == [grammars.prepare().tokens('"')]
    constraint = constraint_of(grammars, schema=schema)
    constraint.advance(grammars.prepare().tokens("["))
    assert allowed(constraint) == [sorted(grammars.prepare().tokens("-0123456789"))]


def test_json_is_written_on_one_line_in_the_order_of_the_schema(grammars: Grammars) -> None:
    schema = {"properties": {"b": {"const": 1}, "a": {"const": [True]}}, "required": ["a", "b"]}
    constraint = constraint_of(grammars, schema={**schema, "additionalProperties": False, "type": "object"})
    (first,) = allowed(constraint)
    constraint.advance(first)
    ids = [*first, *constraint.forced(100)]
    assert grammars.prepare().tokens.text(ids) == '{"b": 1, "a": [true]}'
    assert constraint.complete


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}}},
        {"type": "object", "maxProperties": 1},
        {"properties": {"a": {"type": "integer"}}},
        {},
    ],
)
def test_a_name_has_one_form(grammars: Grammars, schema: dict[str, Any]) -> None:
    r"""Else "\u0061" would pass by what the schema says of "a"."""
    tokens = grammars.prepare().tokens
    constraint = constraint_of(grammars, schema=schema)
    constraint.advance(tokens('{"\\'))
    (options,) = allowed(constraint)
    assert not {*tokens("u/")} & {*options}
    assert {*tokens("n")} <= {*options}, "other escapes may come"


def test_a_control_character_that_a_schema_names_can_come(grammars: Grammars) -> None:
    tokens = grammars.prepare().tokens
    for schema in ({"const": "\x1b[0m"}, {"enum": ["\x1b[0m"]}, {"type": "string", "pattern": "^\x1b\\[0m$"}):
        constraint = constraint_of(grammars, schema=schema)
        for token in tokens('"\\u001b[0m"'):
            (options,) = allowed(constraint)
            assert token in options
            constraint.advance([token])
        assert constraint.complete
