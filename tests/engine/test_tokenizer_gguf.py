import random
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.loading.generation import read_generation
from engine.loading.gguf import GGUFFile, read_gguf
from engine.tokenization import Tokenizer, load_tokenizer, tokenizer_of
from engine.tokenization.byte_pair import byte_level
from engine.tokenization.splits import SPLITS
from engine.tokenization.vocabulary import BYTE_ALPHABET, Kind, Texts, Vocabulary
from engine.types import EngineError

SEED = 11
IM_START, IM_END = 1, 2
CHARACTERS = "ab Z09'\n\t é漢🙂\u0301,.!<|>_\u00a0\u2003٣Ⅷ½-"


@pytest.fixture(scope="module")
def metadata(default_model: Path) -> dict[str, Any]:
    return read_gguf(default_model).metadata


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return load_tokenizer(default_model)


def made(metadata: dict[str, Any], **changes: Any) -> Tokenizer:
    """A tokenizer of changed metadata; None removes a key."""
    changed = metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    kept = {key: value for key, value in changed.items() if value is not None}
    file = GGUFFile(Path("model.gguf"), 3, kept, {})
    return tokenizer_of(file, read_generation(file))


def small(words: Iterable[str], pre: str, control: Iterable[str] = (), **more: Any) -> Tokenizer:
    """A byte-level tokenizer whose merges build these words (in the byte alphabet) from left to right."""
    tokens = list(BYTE_ALPHABET)
    merges = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens:
                tokens.append(word[:end])
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    kinds = [Kind.NORMAL] * len(tokens) + [Kind.CONTROL] * len(list(control))
    values = {
        "model": "gpt2",
        "pre": pre,
        "tokens": [*tokens, *control],
        "merges": merges,
        "token_type": kinds,
    }
    return made({}, **values | {"token_type": np.array(kinds, np.int32)} | more)


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.token_bytes(token).decode() for token in tokenizer.encode(text, special=False)]


def test_default_model_facts(tokenizer: Tokenizer):
    assert tokenizer.vocab_size == 49152
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (1, 2, False)
    assert set(tokenizer.control.ids.values()) == set(range(17))
    assert tokenizer.token_text(IM_END) == "<|im_end|>"
    assert tokenizer.chat_template is not None


def test_B011_both_end_tokens_of_the_default_model(tokenizer: Tokenizer):
    assert tokenizer.end_ids == {0, 2}


def test_anchors(tokenizer: Tokenizer):
    assert tokenizer.encode("🫠" * 8) == [10813, 121, 250] * 8
    assert tokenizer.encode(" ") == [216]
    assert tokenizer.encode("    ") == [289]
    assert tokenizer.encode("The capital of France is Paris.") == [504, 3575, 282, 4649, 314, 7042, 30]
    assert tokenizer.encode("") == []


def test_control_tokens_only_where_asked_for(tokenizer: Tokenizer):
    text = "<|im_start|>user\nHi<|im_end|>"
    assert tokenizer.encode(text) == [IM_START, 4093, 198, 26843, IM_END]
    plain = tokenizer.encode(text, special=False)
    assert not set(plain) & set(range(17))
    assert tokenizer.decode(plain) == text
    assert tokenizer.decode(tokenizer.encode(text)) == "user\nHi"


def test_stand_ins_are_put_back_as_plain_text(tokenizer: Tokenizer):
    ids = tokenizer.encode("a\uf8ffb<|im_end|>", stand_ins={0xF8FF: "<|im_end|>"})
    assert ids == [*tokenizer.encode("a<|im_end|>b", special=False), IM_END]


def test_decoding_undoes_encoding(tokenizer: Tokenizer):
    rng = random.Random(SEED)
    for case in range(500):
        text = "".join(rng.choices(CHARACTERS, k=rng.randint(0, 40)))
        if case % 3 == 0:
            text = "".join(
                chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x40000)])) for _ in text
            )
        assert tokenizer.decode(tokenizer.encode(text, special=False)) == text, (SEED, case)


def test_B077_lone_surrogates_become_replacement_characters(tokenizer: Tokenizer):
    assert tokenizer.decode(tokenizer.encode("caf\udce9 au lait")) == "caf\ufffd au lait"
    assert tokenizer.decode(tokenizer.encode("\ud83d\ude42")) == "🙂"


def test_threads_agree(tokenizer: Tokenizer):
    texts = [f"{i} times the same <|im_end|>\n" * 200 for i in range(8)]
    expected = [tokenizer.encode(text) for text in texts]
    results: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda i=i, text=text: results.update({i: tokenizer.encode(text)}))
        for i, text in enumerate(texts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i] for i in range(8)] == expected


@pytest.mark.parametrize("text", [" " * 200_000, "a" * 200_000, "\n" * 200_000, "<|im_en" * 30_000])
def test_long_runs(tokenizer: Tokenizer, text: str):
    assert tokenizer.decode(tokenizer.encode(text)) == text


# How text is cut into words before merging; the expected cuts are derived by hand from the patterns.


def cut(pre: str, text: str) -> list[str]:
    encoder = byte_level(Vocabulary(list(BYTE_ALPHABET), bytes([Kind.NORMAL]) * 256, True), [], SPLITS[pre])
    normalized = encoder.normalizer.normalize_str(text) if encoder.normalizer else text
    words = encoder.pre_tokenizer.pre_tokenize_str(normalized)
    return [bytes(BYTE_ALPHABET[character] for character in word).decode() for word, _ in words]


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("smollm", "abc 123", ["abc", " ", "1", "2", "3"]),
        ("command-r", "a 12", ["a", " ", "1", "2"]),
        ("falcon3", "ab 1234", ["ab", " ", "123", "4"]),
        ("default", "abc 1234!", ["abc", " ", "123", "4", "!"]),
        ("falcon", "a`b 1234", ["a", "`", "b", " ", "123", "4"]),
        ("deepseek-coder", "ab 12\n!x", ["ab", " ", "1", "2", "\n", "!", "x"]),
        ("deepseek-v3", "1234 don't 漢字", ["123", "4", " don", "'t", " ", "漢字"]),
        ("qwen35", "x\u0301y 12", ["x\u0301y", " ", "1", "2"]),
        ("gpt-4o", "HelloWorld's 1234", ["Hello", "World's", " ", "123", "4"]),
        ("bloom", "a,b c.", ["a", ",", "b", " c", "."]),
        ("viking", "ab 12", ["ab", " ", "1", "2"]),
        ("seed-coder", "ab 12!\n", ["ab", " ", "1", "2", "!", "\n"]),
        ("minicpm5", "ab 1234", ["ab", " ", "123", "4"]),
        ("smollm", "x1y ٣Ⅷ½", ["x", "1", "y", " ", "٣", "Ⅷ", "½"]),
        ("smollm", "it's\n\n  ok!", ["it", "'s", "\n\n ", " ok", "!"]),
        ("gpt-2", "abc 123", ["abc", " 123"]),
        ("gpt-2", "we'll WE'LL", ["we", "'ll", " WE", "'", "LL"]),
        ("gpt-2", "a   b", ["a", "  ", " b"]),
        ("gpt-2", "(x)", ["(", "x", ")"]),
        ("llama-bpe", "1234567 89", ["123", "456", "7", " ", "89"]),
        ("llama-bpe", "WE'LL we'll", ["WE", "'LL", " we", "'ll"]),
        ("llama-bpe", "(x) ...\n\nend", ["(x", ")", " ...\n\n", "end"]),
        ("llama-bpe", "a\n \n b", ["a", "\n \n", " b"]),
        ("llama-bpe", "x    y", ["x", "   ", " y"]),
        ("qwen2", "1234 5", ["1", "2", "3", "4", " ", "5"]),
        ("qwen2", "e\u0301t\u00e9", ["\u00e9t\u00e9"]),
        ("qwen2", "We'Ve", ["We", "'Ve"]),
        ("deepseek-r1-qwen", "12e\u0301", ["1", "2", "e", "\u0301"]),
        ("jais-2", "a      b", ["a", "    ", " ", " b"]),
        ("spark2_5", "a 12\n\n!", ["a", " ", "1", "2", "\n", "\n", "!"]),
        ("youtu", "HelloWorld's 12 가나。", ["Hello", "World's", " ", "1", "2", " ", "가나", "。"]),
        ("ufakzeka", "Ali'sonra", ["Ali", "'sonra"]),
        ("laguna", "a \n b", ["a", " ", "\n", " b"]),
        ("bailingmoe", "it'S\n\nx 12", ["it", "'S", "\n\n", "x", " ", "1", "2"]),
        ("tekken", "HelloWorld HTMLPage", ["Hello", "World", " HTMLPage"]),
        ("tekken", "12 don't", ["1", "2", " don", "'t"]),
        ("tekken", "a//b/\n", ["a", "//", "b", "/\n"]),
    ],
)
def test_words(pre: str, text: str, expected: list[str]):
    assert cut(pre, text) == expected


def test_word_in_the_vocabulary_needs_no_merges():
    def encoded(pre: str, text: str) -> list[int]:
        return small([], pre, tokens=[*BYTE_ALPHABET, "xyz"], token_type=None).encode(text)

    for pre in ("llama-bpe", "smaug-bpe", "glm4", "tekken"):
        assert encoded(pre, "xyz") == [256]
    assert len(encoded("llama-bpe", " xyz")) == 4
    assert len(encoded("qwen2", "xyz")) == 3


def test_merges_in_the_order_of_the_list():
    tokenizer = small(["ab", "bc", "abc"], "gpt-2")
    assert words(tokenizer, "abc bc cab") == ["abc", " ", "bc", " ", "c", "ab"]
    assert words(small(["bc", "ab"], "gpt-2"), "abc") == ["a", "bc"]


@pytest.mark.parametrize("pre", SPLITS)
def test_every_split_keeps_all_text(pre: str):
    tokenizer = small(["ab", "Ġa", "ĠĠ", "ĊĊ", "09"], pre)
    rng = random.Random(SEED)
    for case in range(200):
        text = "".join(rng.choices(CHARACTERS.replace("\u0301", ""), k=rng.randint(0, 30)))
        assert tokenizer.decode(tokenizer.encode(text)) == text, (pre, SEED, case)


def test_control_token_never_comes_from_merges_or_words():
    tokenizer = small(["ab"], "llama-bpe", control=["abc", "<s>"])
    assert words(tokenizer, "abc") == ["ab", "c"]
    assert tokenizer.encode("abc") == [tokenizer.control.ids["abc"]]


def test_longest_control_token_counts():
    tokenizer = small([], "gpt-2", control=["<a", "<a>", "<a>>", "<b>", "§§"])
    names = tokenizer.control.ids
    assert tokenizer.encode("<a>><a><a<b>§§") == [names[t] for t in ("<a>>", "<a>", "<a", "<b>", "§§")]


def test_user_defined_tokens_are_found_in_any_text():
    tokens = [*BYTE_ALPHABET, "<think>", "<|im_end|>"]
    kinds = np.array([Kind.NORMAL] * 256 + [Kind.USER_DEFINED] * 2, np.int32)
    tokenizer = small([], "gpt-2", tokens=tokens, token_type=kinds)
    assert tokenizer.encode("<think>", special=False) == [256]
    assert tokenizer.decode([256]) == "<think>"
    # An end of turn is control whatever the file says, so that no text can end a turn.
    assert 257 not in tokenizer.encode("<|im_end|>", special=False)
    assert tokenizer.encode("<|im_end|>") == [257]
    assert tokenizer.end_ids == {257}


def test_unused_tokens_have_no_text():
    kinds = np.array([Kind.NORMAL] * 256 + [Kind.UNUSED], np.int32)
    tokenizer = small([], "gpt-2", tokens=[*BYTE_ALPHABET, "[PAD256]"], token_type=kinds)
    assert tokenizer.decode([256, BYTE_ALPHABET["a"]]) == tokenizer.decode([BYTE_ALPHABET["a"]])
    assert tokenizer.vocab_size == 257


@pytest.mark.parametrize(
    ("more", "text", "starts"),
    [
        ({}, "hi", 1),  # llama-bpe's default
        ({}, "<s>hi", 1),  # never twice
        ({"add_bos_token": False}, "hi", 0),
        ({"add_bos_token": False}, "<s>hi", 1),
        ({"bos_token_id": None}, "hi", 0),
    ],
)
def test_B013_start_token_once(more: dict[str, Any], text: str, starts: int):
    tokenizer = small([], "llama-bpe", control=["<s>"], **{"bos_token_id": 256} | more)
    ids = tokenizer.encode(text)
    assert ids.count(256) == starts
    assert starts == 0 or ids[0] == 256
    assert 256 not in tokenizer.encode(text, special=False)


def test_end_tokens_of_a_file():
    tokenizer = small(
        [],
        "gpt-2",
        control=["<x>", "<y>", "<z>", "</s>"],
        eos_token_id=256,
        eot_token_id=257,
        eom_token_id=258,
    )
    assert tokenizer.eos_id == 256
    assert tokenizer.end_ids == {256, 257, 258, 259}


def huge_control(count: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda metadata: {
        "tokens": [*BYTE_ALPHABET, *(f"<{i}>" for i in range(count))],
        "token_type": np.array([Kind.NORMAL] * 256 + [Kind.CONTROL] * count, np.int32),
        "merges": [],
    }


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": "t5"}, "model 't5' is not supported"),
        ({"model": None}, "model is missing"),
        ({"pre": "blub"}, "pre 'blub' is not supported"),
        ({"pre": 3}, "pre must be a string"),
        ({"tokens": None}, "tokens is missing"),
        ({"tokens": [1, 2]}, "tokens must be a list of strings"),
        (
            {"tokens": ["a", "b" * 2000], "token_type": None},
            "tokens holds a token of more than 1024 characters (number 1: 2000)",
        ),
        ({"token_type": np.ones(3, np.int32)}, "token_type must be a list of 49152"),
        ({"token_type": np.full(49152, 9, np.int32)}, "token_type must hold numbers from 1 to 6"),
        ({"merges": None}, "merges is missing"),
        ({"merges": ["ab"]}, "merges[0] is not two tokens"),
        ({"merges": ["b" * 99 + " b"]}, "merges make a token that is not there"),
        ({"merges": ["nothere a"]}, "the merges do not fit the tokens"),
        ({"add_bos_token": 1}, "add_bos_token must be true or false"),
    ],
)
def test_broken_metadata_is_refused_by_name(metadata: dict[str, Any], changes: dict[str, Any], named: str):
    with pytest.raises(EngineError) as caught:
        made(metadata, **changes)
    assert caught.value.code == "model_invalid"
    assert named in caught.value.message
    assert "model.gguf" in caught.value.message
    assert "\n" not in caught.value.message


def test_too_many_control_tokens_are_refused(metadata: dict[str, Any]):
    with pytest.raises(EngineError, match="control tokens"):
        made(metadata, **huge_control(20_000)(metadata))
    assert made(metadata, **huge_control(2_000)(metadata)).encode("<1999>") == [256 + 1999]


def test_texts_of_tokens_are_kept_as_one_and_read_as_many() -> None:
    texts = ["a", "", "Ġb", "𝄞", "<|im_end|>", ""]
    kept = Texts(texts)
    assert list(kept) == texts
    assert [kept[i] for i in range(-6, 6)] == [*texts, *texts]
    assert kept[1:5:2] == texts[1:5:2]
    assert list(Texts([])) == []
    for outside in (6, -7):
        with pytest.raises(IndexError):
            kept[outside]
