"""Replies that keep to schemas, on the command line and in batches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIELDS = ("id", "conversation", "model", "text", "thinking", "parsed", "parse_error", "finish_reason")


def test_the_default_model_invents_a_dog(termchat: Callable[..., Any], linked_model: str) -> None:
    outcome = termchat("--schema", "name, age int", "--seed", "1", "-n", "60", "Invent a dog")
    dog = json.loads(outcome.out)
    assert (outcome.code, [*dog], type(dog["age"])) == (0, ["name", "age"], int)


def test_schemas_and_templates_come_through_pipes_of_the_shell_too(
    termchat: Callable[..., Any], requests: list[Any]
) -> None:
    def pipe(text: str) -> str:
        source, target = os.pipe()
        os.write(target, text.encode())
        os.close(target)
        return f"/dev/fd/{source}"

    outcome = termchat("--schema", pipe('{"type": "integer"}'), "--template", pipe("{{ messages }}"), "Hi")
    assert outcome.code == 0
    assert requests[0].sampling["schema"] == '{"type": "integer"}'
    assert requests[0].engine["template"] == "{{ messages }}"
    outcome = termchat("--template", name := pipe("no template"), "Hi")
    assert outcome.code == 2
    assert f"{name} holds no chat template" in outcome.err


def test_json_has_the_value_beside_the_text(
    termchat: Callable[..., Any], scripted: Callable[..., Any]
) -> None:
    scripted('{"name": "Rex", "age": 3}', '{"name": "Rex')
    outcome = termchat("--json", "-t", "0", "--schema", "name, age int", "Invent a dog")
    found = json.loads(outcome.out)
    assert tuple(found)[: len(FIELDS)] == FIELDS
    assert found["parsed"] == json.loads(found["text"]) == {"name": "Rex", "age": 3}
    assert found["parse_error"] is None
    assert "parsed" not in json.loads(termchat("--json", "-t", "0", "-n", "3", "Hi").out)


def test_a_reply_that_was_cut_is_said_to_be_no_json(
    termchat: Callable[..., Any], scripted: Callable[..., Any]
) -> None:
    scripted(*['{"name": "Rex and more and more"}'] * 3)
    outcome = termchat("--json", "-t", "0", "-n", "8", "--schema", "name str", "Invent a dog")
    found = json.loads(outcome.out)
    assert (outcome.code, found["parsed"], found["finish_reason"]) == (0, None, "length")
    problem = "the reply is no complete JSON: it came to the limit of its tokens"
    assert found["parse_error"] == problem
    assert f"{problem}; -n allows more" in outcome.err
    plain = termchat("-t", "0", "-n", "8", "--schema", "name str", "Invent a dog")
    assert (plain.code, plain.out) == (0, found["text"] + "\n")
    assert problem in plain.err
    events = termchat(
        "--jsonl", "-t", "0", "-n", "8", "--schema", "name str", "Invent a dog"
    ).out.splitlines()
    assert json.loads(events[-1])["parse_error"] == problem


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--schema", '{"not": {}}'), "the schema can't be kept to, at /: the library does not support not"),
        (("--schema", "lsit"), "no schema is called 'lsit'; did you mean 'list'?"),
        (("--schema", "no/file.json"), "no/file.json cannot be read"),
        (("--schema", "false"), "no JSON keeps to it"),
        (("--regex", "("), "the regex can't be kept to: unclosed group"),
        (("--grammar", "start: ("), "the grammar can't be kept to: line 1, column 9"),
        (("--grammar", "no-file"), "no-file cannot be read"),
        (("--schema", "list", "--regex", "a"), "schema and regex exclude each other"),
        (("--regex", ""), "regex must be a text that is not empty"),
    ],
)
def test_what_can_t_be_kept_to_is_said_before_a_model_is_loaded(
    termchat: Callable[..., Any], arguments: tuple[str, ...], says: str
) -> None:
    outcome = termchat("--jsonl", *arguments, "Hi")
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_regular_expression_and_a_grammar_hold_for_raw_text(
    termchat: Callable[..., Any], scripted: Callable[..., Any], tmp_path: Path
) -> None:
    scripted("no")
    assert termchat("--raw", "--regex", "yes|no", "A").out == "no\n"
    file = tmp_path / "answer.lark"
    file.write_text('start: "no" | "yes"')
    assert termchat("--grammar", str(file), "A").out == "no\n"
    assert termchat("--grammar", 'start: "<" /n*o/ ">"', "A").out == "<o>\n"


def test_lines_of_a_batch_have_schemas_of_their_own(
    termchat: Callable[..., Any], scripted: Callable[..., Any]
) -> None:
    scripted(*["yes"] * 4)
    lines: list[Any] = [
        {"id": "own", "prompt": "a", "schema": {"enum": ["red"]}},
        {"id": "name", "prompt": "a", "schema": "yes-no"},
        {"id": "regex", "prompt": "a", "regex": "y.s"},
        {"id": "flag", "prompt": "a"},
        {"id": "false", "prompt": "a", "schema": False},
        {"id": "place", "prompt": "a", "schema": {"type": "array", "items": {"not": {}}, "minItems": 1}},
        {"id": "file", "prompt": "a", "schema": "/etc/passwd"},
        {"id": "both", "prompt": "a", "schema": "list", "grammar": "start: /a/"},
        {"id": "type", "prompt": "a", "regex": 3},
    ]
    text = "\n".join(map(json.dumps, lines)).encode()
    outcome = termchat("batch", "-", "--schema", '{"const": 7}', "-t", "0", stdin=text)
    found = {each["id"]: each for each in map(json.loads, outcome.out.splitlines())}
    values = {id: each["parsed"] for id, each in found.items() if "parsed" in each}
    assert values == {"own": "red", "name": "yes", "flag": 7}
    assert found["regex"]["text"] == "yes"
    errors = {id: each["error"]["message"] for id, each in found.items() if "error" in each}
    assert "no JSON keeps to it" in errors["false"]
    assert "at /items: the library does not support not" in errors["place"]
    assert "not a file" in errors["file"]
    assert "schema and grammar exclude each other" in errors["both"]
    assert "regex must be a text" in errors["type"]
    assert outcome.code == 1


def test_a_conversation_goes_on_under_another_schema(
    termchat: Callable[..., Any], scripted: Callable[..., Any]
) -> None:
    """What was asked for once holds for that reply; nothing of it is stored."""
    scripted("yes", "free words")
    assert termchat("--cid", "one", "--schema", "yes-no", "A").out == '"yes"\n'
    assert "yes" not in termchat("--cid", "one", "-t", "0", "-n", "2", "B").err


def test_a_template_that_was_asked_for_is_named_when_it_fails(termchat, linked_model, tmp_path):
    for text, why in (("{{ x", "failed: unexpected end"), ("{{ 'x' }}", "leaves out what the user says")):
        (tmp_path / "mine.jinja").write_text(text)
        outcome = termchat("--template", str(tmp_path / "mine.jinja"), "Hi")
        assert (outcome.code, outcome.out) == (1, "")
        assert f"smollm2-135m: the chat template {tmp_path}/mine.jinja {why}" in outcome.err
