"""SentencePiece vocabularies of GGUF files, against the algorithm written down plainly."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Trainable
from tokenizers import models, normalizers, trainers

from engine.grammar.grammars import Grammars
from engine.loading.generation import read_generation
from engine.loading.gguf import GGUFFile
from engine.tokenization import StreamDecoder, Tokenizer, tokenizer_of
from engine.tokenization.vocabulary import Kind
from engine.types import EngineError
from grammar_walks import constraint_of, walk

SEED = 3
UNKNOWN, START, END = 0, 1, 2
BYTES = 3
PIECES = BYTES + 256
CORPUS = (
    "The quick brown fox jumps over the lazy dog. A tokenizer merges the neighbours that make the best piece "
    "first, and the piece is better the earlier it was learnt.  Two spaces,   three spaces: aaaa aaa aa; "
    "naïve café 日本 the theatre, then there, other, another, bother; 2024 - 1999 = 25!\n"
)


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    """Trained as SentencePiece does it: the score of a piece is minus its place in the order of learning."""
    trainable = Trainable(models.BPE())
    trainable.train_from_iterator([CORPUS.replace(" ", "▁")], trainers.BpeTrainer(vocab_size=220))
    vocabulary = trainable.get_vocab()
    learnt = sorted(vocabulary, key=lambda piece: (len(piece) == 1, vocabulary[piece]))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *learnt, "<tool>"]
    kinds = [Kind.UNKNOWN, Kind.CONTROL, Kind.CONTROL, *[Kind.BYTE] * 256, *[Kind.NORMAL] * len(learnt)]
    scores = [0.0] * PIECES + [-float(i) for i in range(len(learnt))] + [0.0]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([*kinds, Kind.USER_DEFINED], np.int32),
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.bos_token_id": START,
        "tokenizer.ggml.eos_token_id": END,
    }


def made(metadata: dict[str, Any], **changes: Any) -> Tokenizer:
    changed = metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    file = GGUFFile(Path("model.gguf"), 3, changed, {})
    return tokenizer_of(file, read_generation(file))


@pytest.fixture(scope="module")
def tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    return made(metadata)


def merged(metadata: dict[str, Any], text: str) -> list[int]:
    """Merge, one at a time, the neighbours whose piece has the highest score; the leftmost of equals."""
    ids = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    scores = metadata["tokenizer.ggml.scores"]
    symbols = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        pairs = [(i, ids.get(a + b, 0)) for i, (a, b) in enumerate(pairwise(symbols))]
        pairs = [(i, token) for i, token in pairs if token >= PIECES]
        if not pairs:
            break
        best, _ = max(pairs, key=lambda pair: (scores[pair[1]], -pair[0]))
        symbols[best : best + 2] = [symbols[best] + symbols[best + 1]]
    found = []
    for symbol in symbols:
        found += [ids[symbol]] if symbol in ids else [BYTES + byte for byte in symbol.encode()]
    return found


def test_random_texts_as_the_algorithm_says(metadata: dict[str, Any], tokenizer: Tokenizer):
    rng = random.Random(SEED)
    for case in range(1500):
        start = rng.randrange(len(CORPUS))
        text = CORPUS[start : start + rng.randint(0, 50)]
        if case % 3 == 1:
            text = "".join(rng.choices("a t,h 日x🙂\n", k=rng.randint(0, 30)))
        elif case % 3 == 2:
            text = "".join(rng.choices(["  ", "aa", "a", "the", "he", " th", "er"], k=rng.randint(0, 15)))
        assert tokenizer.encode(text, special=False) == merged(metadata, text), (SEED, case, text)


def test_bytes_for_what_no_piece_covers(tokenizer: Tokenizer):
    ids = tokenizer.encode("🙂", special=False)
    assert ids[1:] == [BYTES + byte for byte in "🙂".encode()]
    assert tokenizer.decode(ids) == " 🙂"
    decoder = StreamDecoder(tokenizer)
    assert [decoder.push([token]) for token in ids] == [" ", "", "", "", "🙂"]


def test_unknown_token_where_there_are_no_bytes(metadata: dict[str, Any]):
    kinds = metadata["tokenizer.ggml.token_type"].copy()
    kinds[BYTES:PIECES] = Kind.UNUSED
    tokenizer = made(metadata, token_type=kinds)
    ids = tokenizer.encode("a🙂🙃a", special=False)
    assert ids.count(UNKNOWN) == 1  # neighbours that are unknown are one
    assert tokenizer.decode(ids) == " aa"


def test_byte_names_in_a_text_are_text(tokenizer: Tokenizer):
    assert tokenizer.decode(tokenizer.encode("<0x41> </s>", special=False)) == " <0x41> </s>"


def test_space_in_front_of_each_stretch_of_text(metadata: dict[str, Any], tokenizer: Tokenizer):
    hi = merged(metadata, "the dog")
    assert tokenizer.encode("the dog</s>the dog") == [START, *hi, END, *hi]
    without = made(metadata, add_space_prefix=False)
    assert without.encode(" the dog", special=False) == hi
    assert without.decode(without.encode("the dog")) == "the dog"


def test_B013_start_token_once(metadata: dict[str, Any], tokenizer: Tokenizer):
    assert tokenizer.encode("the").count(START) == 1
    assert tokenizer.encode("<s>the").count(START) == 1
    assert START not in made(metadata, add_bos_token=False).encode("the")


def test_user_defined_token(metadata: dict[str, Any], tokenizer: Tokenizer):
    tool = metadata["tokenizer.ggml.tokens"].index("<tool>")
    assert tokenizer.encode("a<tool>b", special=False).count(tool) == 1
    assert tokenizer.decode([tool]) == "<tool>"


def test_end_ids(tokenizer: Tokenizer):
    assert tokenizer.end_ids == {END}


def test_phi3_markers_take_the_line_end_behind_them(metadata: dict[str, Any]):
    """Its tokenizer.json says so of them (rstrip); a GGUF file has no place for it."""
    tokens = [*metadata["tokenizer.ggml.tokens"], "<|user|>", "<|end|>"]
    scores = np.append(metadata["tokenizer.ggml.scores"], np.zeros(2, np.float32))
    changes: dict[str, Any] = {"tokens": tokens, "scores": scores}
    kinds = [*metadata["tokenizer.ggml.token_type"], Kind.CONTROL, Kind.CONTROL]
    user, end = len(tokens) - 2, len(tokens) - 1
    text = "<s> the<|user|>\n the \n<|end|>\n"
    for architecture, expected in (
        ("phi3", [START, *merged(metadata, " the"), user, *merged(metadata, "the \n"), end]),
        ("llama", [START, *merged(metadata, " the"), user, *merged(metadata, "\n the \n"), end]),
    ):
        changed = metadata | {"general.architecture": architecture}
        tokenizer = made(changed, token_type=np.array(kinds, np.int32), **changes)
        assert tokenizer.encode(text)[: len(expected)] == expected, architecture


@pytest.mark.parametrize("kind", [Kind.NORMAL, Kind.USER_DEFINED])
def test_runs_of_spaces_are_spaces_when_read(metadata: dict[str, Any], kind: Kind):
    tokens = [*metadata["tokenizer.ggml.tokens"], "▁▁▁▁"]
    kinds = np.append(metadata["tokenizer.ggml.token_type"], np.int32(kind))
    tokenizer = made(metadata, tokens=tokens, token_type=kinds, scores=None)
    assert tokenizer.decode([len(tokens) - 1]) == "    "


def test_a_tag_of_html_ends_nothing(metadata: dict[str, Any]):
    """Gemma 3 has <s> and </s> among its tags, and <eos> and <end_of_turn> for turns."""
    kinds = metadata["tokenizer.ggml.token_type"].copy()
    kinds[[START, END]] = Kind.USER_DEFINED
    tokens = [*metadata["tokenizer.ggml.tokens"], "<eos>"]
    eos = len(tokens) - 1
    changes = {"tokens": tokens, "token_type": np.append(kinds, np.int32(Kind.CONTROL)), "scores": None}
    tokenizer = made(metadata, **changes, eos_token_id=eos, bos_token_id=eos)
    assert tokenizer.end_ids == {eos}
    assert tokenizer.decode([START, END]) == "<s></s>"


# Gemma 4: merges instead of scores, of characters instead of bytes; runs of line ends are pieces, too.

LINES = ["\n\n", "\n\n\n", "\n\n\n\n"]


@pytest.fixture(scope="module")
def merging() -> Trainable:
    trainable = Trainable(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trainable.normalizer = normalizers.Replace(" ", "▁")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|channel>", "<channel|>"]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special)
    trainable.train_from_iterator([CORPUS, CORPUS.upper()], trainer)
    learnt = json.loads(trainable.to_str())["model"]
    vocabulary = learnt["vocab"]
    pieces = [*(f"<0x{byte:02X}>" for byte in range(256)), *LINES]
    vocabulary |= {piece: len(vocabulary) + i for i, piece in enumerate(pieces)}
    merges = [*map(tuple, learnt["merges"]), *((a, "\n") for a in ["\n", *LINES[:-1]])]
    trainable.model = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return trainable


def gemma4(merging: Trainable, **changes: Any) -> Tokenizer:
    stored = json.loads(merging.to_str())
    tokens = sorted(stored["model"]["vocab"], key=stored["model"]["vocab"].__getitem__)
    kinds = [Kind.BYTE if token.startswith("<0x") else Kind.NORMAL for token in tokens]
    kinds[:6], kinds[6:8] = [Kind.CONTROL] * 6, [Kind.USER_DEFINED] * 2
    values = {
        "model": "gemma4",
        "tokens": tokens,
        "token_type": np.array(kinds, np.int32),
        "merges": [" ".join(merge) for merge in stored["model"]["merges"]],
        "bos_token_id": 2,
        "eos_token_id": 1,
        "add_space_prefix": False,
    }
    return made({}, **values | changes)


def test_merges_of_characters_as_tokenizers_merges_them(merging: Trainable):
    tokenizer, rng = gemma4(merging), random.Random(SEED)
    parts = [
        *CORPUS.split(),
        " ",
        "  ",
        "    ",
        "\n",
        "\n\n\n\n\n\n",
        "\r\n",
        "\t",
        "é",
        "🙂",
        "日本",
        "▁",
        "x",
    ]
    for case in range(1000):
        text = "".join(rng.choices(parts, k=rng.randint(0, 12)))
        ids = merging.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, special=False) == ids, (SEED, case, text)
        assert tokenizer.decode(ids) == text.replace("▁", " ")


def test_gemma4_turns_begin_and_end(merging: Trainable):
    tokenizer = gemma4(merging, add_bos_token=False)  # as in files of its first weeks
    assert tokenizer.encode("x")[0] == 2
    assert tokenizer.encode("<bos><|turn>x<turn|>").count(2) == 1
    assert tokenizer.end_ids == {1, 5}
    assert set(tokenizer.encode("<|channel><turn|>", special=False)).isdisjoint(range(8))
    assert tokenizer.decode([4, 6, 7, 5]) == "<|channel><channel|>"  # who reads looks for those


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"scores": np.zeros(3, np.float32)}, "scores must be a list of"),
        ({"scores": "high"}, "scores must be a list of"),
    ],
)
def test_broken_metadata_is_refused_by_name(metadata: dict[str, Any], changes: dict[str, Any], named: str):
    with pytest.raises(EngineError, match=named):
        made(metadata, **changes)


def test_scores_must_be_finite(metadata: dict[str, Any]):
    scores = metadata["tokenizer.ggml.scores"].copy()
    scores[PIECES] = np.nan
    with pytest.raises(EngineError, match="scores must be finite"):
        made(metadata, scores=scores)


def test_byte_token_that_is_none(metadata: dict[str, Any]):
    kinds = metadata["tokenizer.ggml.token_type"].copy()
    kinds[PIECES] = Kind.BYTE
    with pytest.raises(EngineError, match="is no byte"):
        made(metadata, token_type=kinds)


def test_endless_piece_is_refused(metadata: dict[str, Any]):
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[PIECES] = "x" * 5000
    with pytest.raises(EngineError, match="more than 1024 characters"):
        made(metadata, tokens=tokens)


def test_replies_keep_to_a_schema(tokenizer: Tokenizer) -> None:
    """Text without a choice is cut without the space that this kind of tokenizer puts before a text."""
    schema = {"enum": ["the theatre", "another bother", "日本 é", "a", "aa"]}
    grammars = Grammars(tokenizer, tokenizer.vocab_size, tokenizer.end_ids)
    tokens = grammars.prepare().tokens
    assert tokens('{"a": "the"}')[0] == tokenizer.encode("\n{", special=False)[-1]
    seen = set()
    for seed in range(60):
        constraint = constraint_of(grammars, schema=schema)
        ids, end = walk(constraint, seed, ends=set(tokenizer.end_ids), closers=set(), forced=True)
        assert end
        seen.add(json.loads(tokens.text(ids)))
    assert seen == set(schema["enum"])
