"""A tokenizer.json nobody has checked: it works, or is refused in one line, soon and quietly."""

import base64
import json
import resource
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, pre_tokenizers

from engine.tokenization import encode_chat, load_tokenizer, pipeline, trial
from engine.tokenization.splits import PATTERNS, SPLITS
from engine.tokenization.tokenizer import MAX_RUN
from engine.tokenization.vocabulary import BYTE_ALPHABET
from engine.types import EngineError, Message

MARKS = ["<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}"


def added(id: int, text: str, special: bool = True) -> dict[str, Any]:
    return {
        "id": id,
        "content": text,
        "special": special,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
    }


def values(**changes: Any) -> dict[str, Any]:
    """A small tokenizer.json; a dictionary changes the part of that name."""
    vocabulary = {character: i for i, character in enumerate(BYTE_ALPHABET)} | {"ab": 256}
    whole: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(257 + i, text) for i, text in enumerate(MARKS)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]]},
    }
    for name, change in changes.items():
        whole[name] = whole[name] | change if name == "model" else change
    return whole


def write(folder: Path, content: dict[str, Any] | bytes, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "tokenizer.json").write_bytes(data)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE} | config))
    return folder


def refused(folder: Path) -> str:
    with pytest.raises(EngineError) as caught:
        load_tokenizer(folder)
    assert caught.value.code == "model_invalid"
    message = caught.value.message
    assert message.isprintable()
    assert len(message) < 700 + len(str(folder))
    assert "tokenizer.json" in message
    return message


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(old: dict[str, str], new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": old, "content": new}


def sequence(*steps: Any) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


DOUBLE = replace({"String": "a"}, "aa")
HOSTILE = {
    "nested repetitions": ({"pre_tokenizer": split("(a+)+b")}, "repeats a group"),
    "alternatives repeated": ({"pre_tokenizer": split("(?:a|ab|b)*c")}, "repeats a group"),
    "in a normalizer": ({"normalizer": replace({"Regex": "(x+x+)+y"}, "z")}, "repeats a group"),
    "many repetitions": ({"pre_tokenizer": split("a*a*a*a*a*b")}, "more than 4 repetitions"),
    "cubic": ({"pre_tokenizer": split("a*a*b")}, "is not harmless"),
    "quadratic": ({"pre_tokenizer": split("a+b")}, "is not harmless: it takes too long"),
    "reference": ({"pre_tokenizer": split(r"(a)\1")}, "refers to itself"),
    "no expression": ({"pre_tokenizer": split("(")}, "is not harmless"),
    "27 doublings": ({"normalizer": sequence(*[DOUBLE] * 27)}, "times longer"),
    "40 doublings": ({"normalizer": sequence(*[DOUBLE] * 40)}, "40 normalizers"),
    "nested doublings": ({"normalizer": sequence(sequence(DOUBLE), *[sequence(DOUBLE)] * 26)}, "longer"),
    "big prepend": ({"normalizer": {"type": "Prepend", "prepend": "x" * 100_000}}, "prepend of a Prepend"),
    "big content": ({"normalizer": replace({"String": "a"}, "x" * 100_000)}, "content of a Replace"),
    "empty pattern": ({"normalizer": replace({"String": ""}, "x")}, "pattern of a Replace"),
    "empty expression": ({"pre_tokenizer": split("")}, "pattern of a Split"),
    "damaged map": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "not harmless"),
    "map of zeros": (
        {
            "normalizer": {
                "type": "Precompiled",
                "precompiled_charsmap": base64.b64encode(b"\4" + b"\0" * 7).decode(),
            }
        },
        "not harmless",
    ),
    "no length": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "length of a FixedLength"),
    "unknown part": ({"normalizer": {"type": "Explode"}}, "type 'Explode'"),
    "prefix": ({"model": {"continuing_subword_prefix": "#" * 50}}, "continuing_subword_prefix"),
    "suffix": ({"model": {"end_of_word_suffix": "</w>"}}, "end_of_word_suffix"),
    "unknown token": ({"model": {"unk_token": "<nope>"}}, "unk_token '<nope>' is not in its vocabulary"),
    "a huge token": ({"model": {"vocab": {"x" * 5_000_000: 0}}}, "more than 1024 characters"),
    "a huge added token": ({"added_tokens": [added(300, "x" * 5_000_000)]}, "more than 1024 characters"),
    "huge ids": ({"model": {"vocab": {"a": 1 << 40}}}, "token ids up to"),
    "ids of no number": ({"model": {"vocab": {"a": "0"}}}, "texts with their token ids"),
    "merges of no token": ({"model": {"merges": ["a b", "ab ab"]}}, "not in its vocabulary: 'abab'"),
    "another model": ({"model": {"type": "WordPiece"}}, "type WordPiece are not supported"),
    "control characters": ({"model": {"unk_token": "\x1b]0;x\x07" * 900}}, "unk_token"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_by_name_and_quietly(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    changes, named = HOSTILE[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert named in refused(write(tmp_path / "m", values(**changes)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10
    assert capfd.readouterr() == ("", "")


TRUNCATION = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
HARMLESS = {
    "nothing": {},
    "an expression of its own": {"pre_tokenizer": split(r"\w+|[^\w\s]+|\s+")},
    "a look-ahead that matches nothing": {"pre_tokenizer": split("(?=b)")},
    "ends of lines": {"pre_tokenizer": split(r"\s+$")},
    "Llama's": {"normalizer": sequence({"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁"))},
    "empty prefix": {"model": {"continuing_subword_prefix": "", "end_of_word_suffix": ""}},
    "cut off": {"truncation": TRUNCATION},
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_files_load(name: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path / "m", values(**HARMLESS[name])))
    assert len(tokenizer.encode("abab", special=False)) >= 2
    for run in (" " * 50_000, "a" * 50_000, "ab\n" * 20_000):
        tokenizer.encode(run)


def test_expressions_of_known_models_need_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: object) -> None:
        raise AssertionError("tried out")

    monkeypatch.setattr(trial, "failure", forbidden)
    for pattern in PATTERNS:
        assert not pipeline.check_parts(pytest.fail, None, split(pattern))
    assert len(SPLITS) > 50


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_expressions_that_are_trusted_would_pass_a_look(pattern: str) -> None:
    """They compile, and long runs take them no time out of proportion: a hang would be seen."""
    words = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    for run in (" ", "a", "A", "1", "\n", "!", "漢", " a", "\u0301"):
        for text in (run * 20_000, run * 20_000 + "x"):
            assert words.pre_tokenize_str(text)[-1][1][1] == len(text)


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_N019_byte_order_marks_in_front(tmp_path: Path, name: str, mark: bytes) -> None:
    folder = write(tmp_path / "m", values())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    expected = encode_chat(load_tokenizer(folder), None, [Message("user", "ab")])
    file = folder / name
    file.write_bytes(mark + file.read_bytes())
    assert encode_chat(load_tokenizer(folder), None, [Message("user", "ab")]) == expected == [257, 256, 258]
    file.write_text(file.read_text("utf-8-sig"), "utf-16")
    with pytest.raises(EngineError, match=f"{name}.*UTF-16.*save the file as UTF-8"):
        load_tokenizer(folder)


def test_templates_read_the_tokens_that_the_files_name(tmp_path: Path) -> None:
    config = {
        "additional_special_tokens": ["<|im_start|>", {"content": "<|im_end|>"}],
        "pad_token": "<|im_end|>",
        "chat_template": "{{ additional_special_tokens[0] }}{{ messages[0].content }}{{ pad_token }}",
    }
    folder = write(tmp_path / "m", values(), **config)
    (folder / "special_tokens_map.json").write_text(json.dumps({"unk_token": "?", "pad_token": "no"}))
    tokenizer = load_tokenizer(folder)
    assert encode_chat(tokenizer, None, [Message("user", "ab")]) == [257, 256, 258]
    assert tokenizer.named["unk_token"] == "?"


def test_N007_added_tokens_that_are_not_special(tmp_path: Path) -> None:
    tokens = [added(257 + i, text, special=False) for i, text in enumerate(MARKS)]
    tokenizer = load_tokenizer(write(tmp_path / "m", values(added_tokens=tokens)))
    ids = encode_chat(tokenizer, None, [Message("user", "<|im_end|>")])
    assert (ids[0], ids[-1], ids.count(258)) == (257, 258, 1)
    assert 258 in tokenizer.end_ids
    assert tokenizer.decode([257, 258]) == ""


def test_N007_markers_in_the_vocabulary_only(tmp_path: Path) -> None:
    vocabulary = values()["model"]["vocab"] | {"<|im_start|>": 257, "<|im_end|>": 258}
    tokenizer = load_tokenizer(write(tmp_path / "m", values(added_tokens=[], model={"vocab": vocabulary})))
    assert encode_chat(tokenizer, None, [Message("user", "ab")]) == [257, 256, 258]


def test_N021_added_tokens_that_stand_twice(tmp_path: Path) -> None:
    tokens = [added(257, "<x>"), added(258, "<x>"), added(259, "<y>", False), added(260, "<y>", False)]
    tokenizer = load_tokenizer(write(tmp_path / "m", values(added_tokens=tokens)))
    assert tokenizer.encode("<x>ab") == [257, 256]
    assert tokenizer.token_text(257) == "<x>"
    assert tokenizer.decode([259, 260]) == "<y><y>"
    assert tokenizer.vocab_size == 261


@pytest.mark.parametrize("first", [True, False])
def test_keys_that_stand_twice_are_checked_as_the_library_reads_them(tmp_path: Path, first: bool) -> None:
    text, hostile = json.dumps(values()), json.dumps(sequence(*[DOUBLE] * 30))
    text = f'{{"normalizer": {hostile}, {text[1:]}' if first else f'{text[:-1]}, "normalizer": {hostile}}}'
    folder = write(tmp_path / "m", text.encode())
    if first:  # the library takes the second, too, which is none
        assert len(load_tokenizer(folder).encode("a" * 10)) <= 10
    else:
        assert "times longer" in refused(folder)


def test_a_folder_with_a_sentencepiece_file_only_gets_advice(tmp_path: Path) -> None:
    for name in ("vocab.json", "tekken.json", "tokenizer.model"):
        (tmp_path / name).write_bytes(b"x")
        assert f"{name} is not read: take a GGUF file" in refused(tmp_path)


def test_many_or_deeply_nested_values(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "more than 3145728 values" in refused(write(tmp_path / "m", b'{"a": [' + b"[]," * 20_000_000))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10
    for depth in (100, 300, 600, 900, 20_000):
        for part in ("normalizer", "decoder", "model"):
            deep = b'{"type":"Sequence","normalizers":[' * depth + b"]}" * depth
            text = json.dumps(values()).encode()[:-1] + f', "{part}": '.encode() + deep + b"}"
            refused(write(tmp_path / "m", text))


class Panic(BaseException):
    """As the library's."""


def test_a_panic_while_encoding_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_tokenizer(write(tmp_path / "m", values()))

    class Broken:
        def encode_batch_fast(self, *arguments: object, **more: object) -> None:
            raise Panic("chunk size\nmust be non-zero")

    monkeypatch.setattr(tokenizer, "_encoder", Broken())
    with pytest.raises(EngineError, match="fails on the text: chunk size must be") as caught:
        tokenizer.encode("ab")
    assert caught.value.code == "invalid_request"


@pytest.mark.parametrize("character", [" ", "A"])
def test_runs_that_the_library_would_give_up_on_are_refused(tmp_path: Path, character: str) -> None:
    tokenizer = load_tokenizer(write(tmp_path / "m", values()))
    with pytest.raises(EngineError, match="more than 4194304 characters"):
        tokenizer.encode(character * (MAX_RUN + 1))
