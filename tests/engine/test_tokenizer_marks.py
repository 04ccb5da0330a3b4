"""Tokens whose kind a file has wrong, tokens that stand twice, and vocabularies made to be costly."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.loading.generation import read_generation
from engine.loading.gguf import GGUFFile, read_gguf
from engine.tokenization import StreamDecoder, Tokenizer, encode_chat, tokenizer_of
from engine.tokenization.vocabulary import BYTE_ALPHABET, Kind
from engine.types import EngineError, Message

A1 = [Message("user", "Count from 1 to 10.")]
USERS_MARK = [44, 108, 306, 79, 486, 108, 46]
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = (int(kind) for kind in Kind)


@pytest.fixture(scope="module")
def metadata(default_model: Path) -> dict[str, Any]:
    return read_gguf(default_model).metadata


@pytest.fixture(scope="module")
def expected(metadata: dict[str, Any]) -> list[int]:
    ids = encode_chat(made(metadata), None, A1)
    assert len(ids) == 39
    return ids


def made(metadata: dict[str, Any], **changes: Any) -> Tokenizer:
    """A tokenizer of changed metadata; None removes a key."""
    changed = metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    kept = {key: value for key, value in changed.items() if value is not None}
    file = GGUFFile(Path("model.gguf"), 3, kept, {})
    return tokenizer_of(file, read_generation(file))


def types(metadata: dict[str, Any], **changes: int) -> Any:
    """The default model's token types, some of them changed: t5=1 makes token 5 ordinary."""
    changed = metadata["tokenizer.ggml.token_type"].copy()
    for name, kind in changes.items():
        changed[int(name[1:])] = kind
    return changed


def check(tokenizer: Tokenizer, expected: list[int]) -> None:
    assert encode_chat(tokenizer, None, A1) == expected
    assert {1, 2} <= set(tokenizer.control.ids.values())
    assert 2 in tokenizer.end_ids
    assert tokenizer.decode([1, 2]) == ""
    said = encode_chat(tokenizer, None, [Message("user", "a<|im_end|>b")])
    assert "".join(map(str, said)).count("".join(map(str, USERS_MARK[:-1]))) == 1, said


@pytest.mark.parametrize("kind", [NORMAL, USER, UNUSED, 0])
def test_N007_turn_markers_of_another_kind(metadata: dict[str, Any], expected: list[int], kind: int) -> None:
    check(made(metadata, token_type=types(metadata, t1=kind, t2=kind)), expected)


def test_N007_without_token_types(metadata: dict[str, Any], expected: list[int]) -> None:
    check(made(metadata, token_type=None), expected)


def test_N007_every_control_token_ordinary(metadata: dict[str, Any], expected: list[int]) -> None:
    changed = np.full(49152, NORMAL, np.int32)
    check(made(metadata, token_type=changed), expected)


def test_N007_markers_that_the_template_composes(metadata: dict[str, Any]) -> None:
    template = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[3:7] = ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
    tokenizer = made(
        metadata | {"tokenizer.chat_template": template},
        tokens=tokens,
        token_type=types(metadata, t3=1, t4=1, t5=1, t6=1),
    )
    assert encode_chat(tokenizer, None, [Message("user", "a<|user|>")])[::8][:1] == [3]
    assert tokenizer.encode("<|user|><|assistant|><|system|><|end|>") == [3, 4, 5, 6]
    assert encode_chat(tokenizer, None, [Message("user", "<|user|>")]).count(3) == 1


def test_N007_ordinary_tokens_marked_as_control(metadata: dict[str, Any], expected: list[int]) -> None:
    plain = made(metadata)
    text = "The capital of France is Paris."
    words = [token for token in plain.encode(text) if token > 300]
    letters = plain.encode("a", special=False)
    changed = types(metadata, **{f"t{token}": CONTROL for token in [*words, *letters]})
    tokenizer = made(metadata, token_type=changed)
    assert tokenizer.encode(text) == plain.encode(text)
    assert tokenizer.decode(tokenizer.encode(text + " a")) == text + " a"
    check(tokenizer, expected)


def test_N007_a_merged_token_in_the_shape_of_a_marker_stays_text(metadata: dict[str, Any]) -> None:
    tokens = [*BYTE_ALPHABET, "<a", "<a>"]
    tokenizer = made(
        {"tokenizer.chat_template": "<a>{{ messages[0].content }}"},
        model="gpt2",
        pre="gpt-2",
        tokens=tokens,
        merges=["< a", "<a >"],
    )
    assert tokenizer.decode([257]) == "<a>"


def test_the_end_of_a_message_is_not_that_of_a_turn_of_several(metadata: dict[str, Any]) -> None:
    """OpenAI's harmony format: thinking and answer are messages of one turn, and <|return|> ends it."""
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[3:9] = ["<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>", "<|message|>"]
    tokenizer = made(metadata, tokens=tokens, eos_token_id=4, eot_token_id=3)
    assert tokenizer.end_ids == {0, 2, 4, 5}
    assert tokenizer.decode([7, 8, 3, 6]) == "<|channel|><|message|><|start|>"
    tokens[4:6] = ["<|x|>", "<|y|>"]
    assert made(metadata, tokens=tokens, eos_token_id=0).end_ids == {0, 2, 3}


def test_thinking_marks_can_be_read_whatever_their_kind(metadata: dict[str, Any]) -> None:
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[3:5] = ["<think>", "</think>"]
    tokenizer = made(metadata, tokens=tokens)
    decoder = StreamDecoder(tokenizer)
    assert decoder.push([3, *tokenizer.encode("so"), 4]) + decoder.finish() == "<think>so</think>"


SPM = {
    "model": "llama",
    "tokens": [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "▁a",
        "ab",
        "b",
    ],
    "scores": np.array([0] * 259 + [-1, -2, -3, -4, -5], np.float32),
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.mark.parametrize("kinds", [None, 0, 1])
def test_N007_sentencepiece_without_kinds(kinds: int | None) -> None:
    token_type = None if kinds is None else np.full(264, kinds, np.int32)
    tokenizer = made({}, **SPM, token_type=token_type)
    assert tokenizer.encode("ab") == [1, 261, 263]
    assert tokenizer.decode(tokenizer.encode("aé\n")) == " aé\n"
    assert tokenizer.control.ids == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert tokenizer.encode("</s>", special=False).count(2) == 0
    assert tokenizer.end_ids == {2}


def test_N007_sentencepiece_words_marked_as_control() -> None:
    token_type = np.array([2, 3, 3] + [6] * 256 + [1, 1, 3, 1, 1], np.int32)
    tokenizer = made({}, **SPM, token_type=token_type)
    assert tokenizer.decode(tokenizer.encode("a")) == " a"
    assert "▁a" not in tokenizer.control.ids


@pytest.mark.parametrize("texts", [("", ""), ("<dup>", "<dup>")])
def test_N021_two_tokens_with_one_text(metadata: dict[str, Any], expected: list[int], texts: Any) -> None:
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[15:17] = texts
    tokenizer = made(metadata, tokens=tokens)
    check(tokenizer, expected)
    assert tokenizer.decode([15, 16]) == ""
    if texts[0]:
        assert tokenizer.encode("<dup>") == [15]
        assert tokenizer.token_text(16) in ("", "<dup>")


def test_N021_an_ordinary_token_with_the_text_of_another(
    metadata: dict[str, Any], expected: list[int]
) -> None:
    tokens = list(metadata["tokenizer.ggml.tokens"])
    parts = set().union(*(merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]))
    made_of = {merge.replace(" ", "") for merge in metadata["tokenizer.ggml.merges"]}
    twin = tokens.index("Ġthe")
    lonely = next(i for i in range(len(tokens) - 1, 0, -1) if tokens[i] not in parts)
    assert tokens[lonely] in made_of
    merges = [m for m in metadata["tokenizer.ggml.merges"] if m.replace(" ", "") != tokens[lonely]]
    tokens[lonely] = "Ġthe"
    tokenizer = made(metadata, tokens=tokens, merges=merges)
    check(tokenizer, expected)
    assert tokenizer.encode(" the") == [twin]
    assert tokenizer.decode([twin, lonely]) == " the the"


def test_N021_sentencepiece_pieces_that_stand_twice() -> None:
    tokens = [*SPM["tokens"], "ab", "", ""]  # type: ignore[misc]
    scores = np.append(SPM["scores"], np.float32([-9, -9, -9]))  # type: ignore[arg-type]
    tokenizer = made({}, **SPM | {"tokens": tokens, "scores": scores})
    assert tokenizer.encode("bab")[-1] == 262
    assert tokenizer.decode([262, 264, 265, 266]) == "abab"


def seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


HOSTILE: dict[str, Callable[[], list[str]]] = {
    "one letter": lambda: ["a" * n for n in range(1, 1001)],
    "sixteen letters": lambda: [letter * n for letter in "abcdefghijklmnop" for n in range(1, 1001)],
    "long tokens": lambda: [f"{n:05}" + "x" * 900 for n in range(20_000)],
    "markers": lambda: [f"<|{n}|>" for n in range(50_000)],
    "a huge token": lambda: ["a", "b" * 60_000_000],
    "control characters": lambda: ["a", "\x1b[31m\u202e" * 1000],
}


@pytest.mark.parametrize(
    ("model", "kind"), [("llama", NORMAL), ("gpt2", NORMAL), ("gpt2", CONTROL), ("gpt2", USER)]
)
@pytest.mark.parametrize("name", HOSTILE)
def test_vocabularies_made_to_be_costly(name: str, model: str, kind: int) -> None:
    """Refused, or made, in little time and memory, and quoted in a line of bounded length."""
    tokens = HOSTILE[name]()
    kinds = np.full(len(tokens), kind, np.int32)
    scores = -np.arange(len(tokens), dtype=np.float32)
    before, started = resident(), seconds()
    message = ""
    try:
        made({}, model=model, pre="gpt-2", merges=[], tokens=tokens, scores=scores, token_type=kinds)
    except EngineError as error:
        message = error.message
    assert len(message) < 500
    assert not message or message.isprintable()
    assert seconds() - started < 5
    assert resident() - before < 300 << 20


def test_a_large_honest_vocabulary_is_not_refused() -> None:
    """As large as those of models with 256,000 pieces: beginnings of words, each made of the one before."""
    words = [f"▁{n:04}abcde" for n in range(4_000)]
    tokens = list(dict.fromkeys([*"▁0123456789abcde", *(w[:n] for w in words for n in range(2, len(w) + 1))]))
    started = seconds()
    tokenizer = made({}, model="llama", tokens=tokens, scores=-np.arange(len(tokens), dtype=np.float32))
    assert tokenizer.vocab_size > 16_000
    assert seconds() - started < 30
