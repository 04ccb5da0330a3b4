"""Vocabularies of every kind as grammars see them, and the thinking that no grammar holds for."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Encoder

from engine import AsyncEngine, EngineConfig, EngineError, Message, SamplingParams
from engine.grammar.grammars import Grammars
from engine.grammar.thinking import Marks, marks_of
from engine.grammar.tokens import Tokens
from engine.testing import ScriptedModel
from engine.tokenization import load_tokenizer
from grammar_walks import allowed, constraint_of, walk

END = 257
DOG = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}


def with_tokens(tiny: Path, folder: Path, names: list[str], template: str | None = None) -> Path:
    """The tiny tokenizer with more special tokens, from 258 on."""
    encoder = Encoder.from_file(str(tiny / "tokenizer.json"))
    encoder.add_special_tokens([AddedToken(name, special=True) for name in names])
    encoder.save(str(folder / "tokenizer.json"))
    config = json.loads((tiny / "tokenizer_config.json").read_text())
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def thinker(tiny_tokenizer: Path, tmp_path: Path) -> Path:
    return with_tokens(tiny_tokenizer, tmp_path, ["<think>", "</think>"])


@pytest.mark.parametrize("size", [100, 258, 300])
def test_logits_may_be_more_or_fewer_than_tokens(tiny_tokenizer: Path, size: int) -> None:
    """What has no token is never allowed, and neither is what has no logit."""
    tokenizer = load_tokenizer(tiny_tokenizer)
    grammars = Grammars(tokenizer, size, frozenset([END if size > END else 7]))
    (found,) = allowed(constraint_of(grammars, regex="(?s:.*)"))
    assert found
    assert max(found) < min(size, 258)
    assert 256 not in found, "a control token is no text"


def test_control_tokens_and_end_tokens_are_no_text(thinker: Path) -> None:
    """Of two end tokens either may end a reply; the others never come."""
    tokenizer = load_tokenizer(thinker)
    grammars = Grammars(tokenizer, tokenizer.vocab_size, frozenset([256, 257]))
    constraint = constraint_of(grammars, regex="(?s:.*)")
    (found,) = allowed(constraint)
    assert {256, 257} < set(found)
    assert not {258, 259} & set(found)
    tokens = grammars.prepare().tokens
    constraint.advance(tokens("<think>"))
    assert constraint.matcher.is_accepting(), "its characters are text like others"


def test_the_default_model_writes_json(default_model: Path) -> None:
    tokenizer = load_tokenizer(default_model)
    grammars = Grammars(tokenizer, tokenizer.vocab_size, tokenizer.end_ids)
    tokens = grammars.prepare().tokens
    closers = set(tokens('"')) | set(tokens('"}'))
    for seed in range(20):
        constraint = constraint_of(grammars, schema={**DOG, "additionalProperties": False})
        ids, end = walk(constraint, seed, ends={0, 2}, closers=closers)
        assert end
        text = tokenizer.decode(ids)
        assert [*json.loads(text)] == ["name"]
        assert tokens.text(ids) == text


def test_text_is_cut_into_the_bytes_that_it_has(default_model: Path) -> None:
    tokenizer = load_tokenizer(default_model)
    tokens = Tokens(tokenizer, tokenizer.vocab_size, tokenizer.end_ids)
    rng = random.Random(2)
    for _ in range(200):
        text = "".join(rng.choices(['"', " ", "a", "é", "名", "\n", "{", "1", "🐕", "e\u0301"], k=12))
        assert tokens.text(tokens(text)) == text
        assert tokens(text) == tokenizer.encode(text, special=False)


class SpaceBefore:
    """A tokenizer of characters that writes a space before every text, and composes letters."""

    vocab_size = 4

    def __init__(self) -> None:
        self.texts = [" ", "a", "\n", "é".encode().decode()]
        self.control = type("", (), {"ids": {}})

    def token_bytes(self, token: int) -> bytes:
        return self.texts[token].encode()

    def token_text(self, token: int) -> str:
        return self.texts[token]

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        return [self.texts.index(each) for each in " " + text.replace("e\u0301", "é")]


def test_a_tokenizer_that_changes_texts_is_gone_round() -> None:
    tokens = Tokens(SpaceBefore(), 4, [2])  # type: ignore[arg-type]
    assert tokens("aa") == [1, 1]
    assert tokens("a a") == [1, 0, 1]
    assert tokens("ae\u0301") == [1], "as far as there are tokens"


def test_marks_are_known_by_their_tokens(tiny_tokenizer: Path, thinker: Path, tmp_path: Path) -> None:
    def marks(path: Path) -> Marks | None:
        tokenizer = load_tokenizer(path)
        return marks_of(tokenizer, tokenizer.vocab_size)

    assert marks(tiny_tokenizer) is None
    assert marks(thinker) == Marks(258, (259,))
    names = ["<|channel|>", "<|message|>", "<|start|>"]
    found = marks(with_tokens(tiny_tokenizer, tmp_path, names))
    assert found is not None
    assert (found.opening, found.always) == (258, True)
    assert (found.closing[0], found.closing[-1]) == (258, 259)


QUESTION = [Message("user", "x")]


async def answer(
    path: Path, script: list[int], messages: Any, *, continue_final: bool = False, **settings: Any
) -> tuple[str, str]:
    model = ScriptedModel([script], path, [END])
    params = SamplingParams(temperature=0, max_tokens=80, **settings)
    async with AsyncEngine(EngineConfig(model=model)) as engine:
        final = await engine.generate(messages, params, continue_final=continue_final).result()
        await engine.audit()
    assert final.error is None, final.error
    return final.text, final.reason


async def test_a_model_may_think_before_it_answers(thinker: Path) -> None:
    tokens = load_tokenizer(thinker)
    thought = [258, *tokens.encode("Anything [at all", special=False), 259]
    schema = {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 2}
    assert await answer(thinker, thought, QUESTION, schema=schema) == (
        "<think>Anything [at all</think>[null, null]",
        "stop",
    )
    bracket = tokens.encode("[", special=False)
    assert await answer(thinker, bracket, QUESTION, schema=schema) == ("[null, null]", "stop")
    assert await answer(thinker, thought, "a raw text", schema=schema) == ("[null, null]", "stop")
    assert await answer(thinker, [*thought[:3], END], QUESTION, schema=schema) == ("<think>An", "stop")


async def test_thinking_that_the_template_began_goes_on(tiny_tokenizer: Path, tmp_path: Path) -> None:
    template = json.loads((tiny_tokenizer / "tokenizer_config.json").read_text())["chat_template"]
    opened = template.replace("assistant\n", "assistant\n<think>\n")
    assert opened != template
    path = with_tokens(tiny_tokenizer, tmp_path, ["<think>", "</think>"], opened)
    thought = [*load_tokenizer(path).encode("Well", special=False), 259]
    closed = with_tokens(
        tiny_tokenizer, tmp_path, ["<think>", "</think>"], opened.replace("<think>", "<think></think>")
    )
    assert await answer(closed, [258], QUESTION, regex="[yn]") in (("y", "stop"), ("n", "stop"))
    path = with_tokens(tiny_tokenizer, tmp_path, ["<think>", "</think>"], opened)
    assert await answer(path, thought, QUESTION, regex="yes") == ("Well</think>yes", "stop")
    said = [*QUESTION, Message("assistant", "<think>We")]
    found = await answer(path, thought[2:], said, continue_final=True, regex="yes")
    assert found == ("ll</think>yes", "stop")
    said = [*QUESTION, Message("assistant", "<think>We</think>\n\nye")]
    assert await answer(path, thought, said, continue_final=True, regex="yes") == ("s", "stop")


def test_drafts_stop_where_the_answer_begins(thinker: Path) -> None:
    tokenizer = load_tokenizer(thinker)
    grammars = Grammars(tokenizer, tokenizer.vocab_size, frozenset([END]))
    constraint = constraint_of(grammars, QUESTION, regex="[ab]{4}")
    (found,) = allowed(constraint)
    assert found == [*grammars.prepare().tokens("ab"), 258]
    assert constraint.permitted([258, 5]) == 0
    constraint.advance([258])
    assert not constraint.masks
    assert constraint.permitted([5, 6, 259, 7]) == 2
    constraint.advance([5, 259])
    assert constraint.masks
    a, b = grammars.prepare().tokens("ab")
    assert constraint.permitted([a, b, a, b]) == 3, "the last one would leave nothing for the row behind it"
    assert constraint.permitted([a, 5, a]) == 1
    assert constraint.permitted([END]) == 0
    assert allowed(constraint, [a, b]) == [[a, b]] * 3
    assert allowed(constraint, [a, 5, b]) == [[a, b], [a, b], [], []]
    assert allowed(constraint, [a, b, a, b]) == [[a, b]] * 4 + [[]]
    assert allowed(constraint.ahead([a, b, a, b])) == [[END]]
    assert allowed(constraint.ahead([a, 5])) == [[]]
    constraint.advance([a, b, a, b])
    assert constraint.complete


def test_a_model_without_an_end_token_is_refused(tiny_tokenizer: Path) -> None:
    with pytest.raises(EngineError, match="no end token"):
        constraint_of(Grammars(load_tokenizer(tiny_tokenizer), 258, frozenset()), regex="a")


def test_a_grammar_is_compiled_once(tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grammars = Grammars(load_tokenizer(tiny_tokenizer), 258, frozenset([END]))
    first = constraint_of(grammars, regex="ab")
    first.advance(grammars.prepare().tokens("ab"))
    monkeypatch.setattr("engine.grammar.grammars.compile_source", None)
    assert not constraint_of(grammars, regex="ab").complete
    with pytest.raises(TypeError):
        constraint_of(grammars, regex="abc")


CHAIN = {f"a{i}": {"items": {"$ref": f"#/x/a{i + 1}"}} for i in range(1400)} | {"a1400": {}}
"""Deeper than the library can recurse."""


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"regex": "("}, "the regex can't be kept to: unclosed group"),
        ({"regex": "(?=a)b"}, "look-ahead"),
        ({"regex": "(a)\\1"}, "backreferences"),
        ({"regex": "[^\\s\\S]"}, "no text keeps to the regex"),
        ({"regex": "a" * 70_000}, "the regex has 70000 characters; at most 65536"),
        ({"regex": "(" * 30_000}, "the regex can't be kept to"),
        ({"grammar": "start: ("}, "line 1, column 9: Expected token"),
        ({"grammar": "start: nothing"}, "the grammar can't be kept to"),
        ({"grammar": "word: /a/"}, "no start rule"),
        ({"grammar": ""}, "the grammar can't be kept to"),
        ({"grammar": "start: start"}, "no text keeps to the grammar"),
        ({"grammar": "start: " + "(" * 5000 + '"a"'}, "too deeply nested"),
        ({"grammar": "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(3000))}, "3001 rules"),
        ({"grammar": "start: %import common.WORD"}, "line 1, column 8"),
        (
            {"grammar": 'start: %json {"const": -9223372036854775808}'},
            "at /: -9223372036854775808 is too large",
        ),
        ({"grammar": 'start: "a" %json\n{"items": {"$dynamicRef": "#a"}}'}, "does not support $dynamicRef"),
        ({"grammar": 'start: %json {"const": 1'}, "the grammar can't be kept to"),
        (
            {"grammar": "start: %json " + json.dumps({"$ref": "#/x/a0", "x": CHAIN})},
            "levels deep, through references too",
        ),
        ({"grammar": "start: <|no_such_token|>"}, "the grammar can't be kept to"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_hostile_or_impossible_grammar_is_refused(
    tiny_tokenizer: Path, what: dict[str, str], says: str
) -> None:
    with pytest.raises(EngineError) as caught:
        constraint_of(Grammars(load_tokenizer(tiny_tokenizer), 258, frozenset([END])), **what)
    assert caught.value.code == "grammar"
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 500


async def test_a_grammar_that_becomes_too_complex_ends_its_reply_alone(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llguidance import LLParserLimits

    def few() -> LLParserLimits:
        return LLParserLimits(max_items_in_row=20, verbose_errors=False)

    monkeypatch.setattr("engine.grammar.grammars.limits", few)
    model = ScriptedModel([[], [65] * 40], tiny_tokenizer, [END])
    async with AsyncEngine(EngineConfig(model=model)) as engine:
        many = "\n".join(f"r{i}: /x/ r{i}? /y{i}/" for i in range(9))
        every = " | ".join(f"r{i}" for i in range(9))
        params = SamplingParams(grammar=f"start: {every}\n{many}", seed=1, max_tokens=40)
        streams = [engine.generate([5], params), engine.generate([6], SamplingParams(max_tokens=30))]
        final, beside = [await stream.result() for stream in streams]
        await engine.audit()
    assert final.error is not None, final
    assert (final.error.code, beside.error, len(beside.token_ids)) == ("grammar", None, 30)
    assert "the grammar can't be followed further after" in final.error.message
