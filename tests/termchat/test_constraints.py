"""Schemas by name, in the short form, as JSON and from files; what is wrong with them in one sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from termchat.constraints import (
    CONSTRAINTS,
    ConstraintError,
    check,
    constraint_of,
    described,
    grammar_of,
    names,
    over,
    parsed,
    schema_of,
)


def fields(text: str) -> dict[str, str]:
    return {name: field["type"] for name, field in json.loads(schema_of(text))["properties"].items()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name, age int", {"name": "string", "age": "integer"}),
        ("name str", {"name": "string"}),
        ("a bool,b float , c number,d string", {"a": "boolean", "b": "number", "c": "number", "d": "string"}),
        ("größe: in cm, 名前", {"größe": "string", "名前": "string"}),
        ("name: first, or last\nage int: in years\n\n", {"name": "string", "age": "integer"}),
        ("bio: text, age int,", {"bio": "string", "age": "integer"}),
    ],
)
def test_fields_in_the_short_form(text: str, found: dict[str, str]) -> None:
    assert fields(text) == found
    schema = json.loads(schema_of(text))
    assert schema["required"] == [*found]
    assert schema["additionalProperties"] is False
    check({"schema": schema_of(text)})


def test_what_stands_behind_a_colon_describes_the_field() -> None:
    schema = json.loads(schema_of("name: first, or last\nage int: in years"))
    assert schema["properties"]["name"] == {"type": "string", "description": "first, or last"}
    assert schema["properties"]["age"] == {"type": "integer", "description": "in years"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "name, age integre",
            "'age integre' is no field of a schema: write NAME, or NAME TYPE (str, int, float, bool)",
        ),
        ("name, name", "two fields 'name'"),
        ("a b c, d", "'a b c' is no field"),
        (": x, y", "is no field"),
        (" , ,", "', ,' has no field: write NAME"),
        (
            "lsit",
            "no schema is called 'lsit'; did you mean 'list'?; for one field of that name write 'lsit str'",
        ),
        ("owner", "there are entities, json, list"),
        ("no/such/file", "no/such/file cannot be read: No such file or directory"),
        ("nothing.json", "nothing.json cannot be read"),
    ],
)
def test_what_is_no_schema_is_said(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConstraintError) as caught:
        schema_of(text)
    assert says in str(caught.value)


def test_every_schema_that_has_a_name_can_be_kept_to() -> None:
    assert {"json", "list", "yes-no"} < set(names())
    for name in names():
        text = schema_of(name)
        check({"schema": text})
        jsonschema.Draft202012Validator.check_schema(json.loads(text))
        assert json.loads(text)["description"]


def test_json_and_files(tmp_path: Path) -> None:
    assert schema_of('  {"type": "null"}') == '  {"type": "null"}'
    assert schema_of("true") == "true"
    file = tmp_path / "a schema.json"
    file.write_bytes(b"\xef\xbb\xbf" + b'{"type": "integer"}')
    assert schema_of(str(file)) == '{"type": "integer"}'
    assert constraint_of({"schema": str(file), "regex": None}) == {"schema": '{"type": "integer"}'}
    file.write_bytes(b'{"\xff": 1}')
    with pytest.raises(ConstraintError, match="is not UTF-8: wrong byte 0xff in line 1"):
        schema_of(str(file))
    file.write_bytes(b" " * (1 << 21))
    with pytest.raises(ConstraintError, match="more than 1048576 bytes"):
        schema_of(str(file))
    for folder in (f"{tmp_path}/", os.path.relpath(tmp_path)):
        with pytest.raises(ConstraintError, match="cannot be read: Is a directory"):
            schema_of(folder)
    for wrong, says in (("", "the schema is no JSON"), ("[1]", "object"), ('{"not": {}}', "kept to, at /")):
        file.write_text(wrong)
        with pytest.raises(ConstraintError) as caught:
            schema_of(str(file))
        assert str(caught.value).startswith(f"{file}: ")
        assert says in str(caught.value)
    with pytest.raises(ConstraintError, match="not a file"):
        constraint_of({"schema": f"{tmp_path}/x y z"}, read=None)


def test_a_grammar_is_text_or_a_file(tmp_path: Path) -> None:
    assert grammar_of('start: "a"') == 'start: "a"'
    file = tmp_path / "answer.lark"
    file.write_text('start: "b"\n')
    assert constraint_of({"grammar": str(file)}) == {"grammar": 'start: "b"\n'}
    file.write_text("start: b\n")
    with pytest.raises(ConstraintError, match=r"answer\.lark: the grammar can't be kept to"):
        grammar_of(str(file))
    with pytest.raises(ConstraintError, match="cannot be read"):
        grammar_of(str(tmp_path / "nothing.lark"))
    assert constraint_of({"grammar": 'start: "c"'}, read=None) == {"grammar": 'start: "c"'}


def test_only_one_thing_is_kept_to() -> None:
    assert [*CONSTRAINTS] == ["schema", "regex", "grammar"]
    assert constraint_of({}) == {}
    with pytest.raises(ConstraintError, match="schema and regex exclude each other"):
        constraint_of({"schema": "list", "regex": "a"})
    with pytest.raises(ConstraintError, match="regex must be a text that is not empty"):
        constraint_of({"regex": ""})
    assert over({"schema": "{}", "seed": 1}, {"regex": "a"}) == {"seed": 1, "regex": "a"}
    assert over({"schema": "{}", "seed": 1}, {"seed": 2}) == {"schema": "{}", "seed": 2}
    with pytest.raises(ConstraintError, match="at /items: the library does not support not"):
        check({"schema": '{"type": "array", "items": {"not": {}}}', "temperature": 0})
    check({"temperature": 0})


def test_the_value_of_a_reply_or_why_there_is_none() -> None:
    assert parsed('{"a": [1]}', "stop") == ({"a": [1]}, None)
    assert parsed("null", "stop") == (None, None)
    assert parsed('{"a": {"b\\n": 1, "c": 2, "b\\n": 3}}', "length") == (
        None,
        "the reply has two values of 'b\\n' in one object",
    )
    assert parsed('{"a": [', "length") == (
        None,
        "the reply is no complete JSON: it came to the limit of its tokens",
    )
    assert parsed('{"a": [', "stop", ", ") == (
        None,
        "the reply is no complete JSON: it came to the stop text ', '",
    )
    value, why = parsed("{", "stop", 2)
    assert value is None
    assert why is not None
    assert why.startswith("the reply is no JSON: ")
    assert (
        parsed("[1e999]", "stop")[1]
        == "the reply is no JSON: it holds 1e999, which is no number that can be written again"
    )
    assert (
        parsed("[" * 100_000, "aborted")[1]
        == "the reply is no complete JSON: it came to where it was stopped"
    )


@pytest.mark.parametrize(
    ("sampling", "says"),
    [
        ({"temperature": 1}, ""),
        ({"regex": "a+"}, "regex"),
        ({"schema": schema_of("yes-no")}, "schema yes-no"),
        ({"schema": schema_of("name, age int")}, "schema {name, age}"),
        ({"schema": "true"}, "schema"),
        ({"schema": '{"properties": 3}'}, "schema"),
        ({"schema": "[" * 9999}, "schema"),
    ],
)
def test_what_replies_keep_to_in_a_few_words(sampling: dict[str, Any], says: str) -> None:
    assert described(sampling) == says
