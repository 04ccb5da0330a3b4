"""The tokenizer in a GGUF file's metadata (`tokenizer.ggml.*`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Encoder

from kernels.machine import need_addresses

from ..loading.fields import REQUIRED, Fields, shown
from ..loading.generation import Generation
from ..loading.gguf import GGUFFile
from .byte_pair import byte_level, scored_merges, with_byte_fallback
from .control import is_marker, with_marks, without_marks
from .splits import SPLITS, Split
from .tokenizer import Tokenizer
from .vocabulary import BYTE_ALPHABET, MAX_PIECE, Kind, Vocabulary, is_byte_token

_UNDEFINED = 0  # a token type of files that say nothing of one

_MODELS = ("gpt2", "llama", "gemma4")
_TEXT_FOLLOWS = ("<s>", "<unk>", "<|endoftext|>")
"""The control tokens of Phi-3 that do not take the white space behind them away."""
_OTHERS = {"bert": "WordPiece", "t5": "unigram", "rwkv": "RWKV", "plamo2": "PLaMo 2"}


def _strings(fields: Fields, name: str) -> list[str]:
    values = fields.get(name, REQUIRED)
    if not isinstance(values, list) or not isinstance(values[0] if values else "", str):  # all of one type
        fields.fail(name, "must be a list of strings")
    return values


def _numbers(fields: Fields, name: str, count: int, default: float) -> NDArray[Any]:
    values = fields.get(name)
    if values is None:
        return np.full(count, default)
    if not isinstance(values, np.ndarray) or len(values) != count:
        fields.fail(name, f"must be a list of {count} numbers, one for each token")
    if not np.isfinite(values).all():
        fields.fail(name, "must be finite")
    return values


def _tokens(fields: Fields, name: str, size: int) -> list[int]:
    """The declared token, where the vocabulary has it."""
    return [token for token in fields.token_ids(name) if token < size]


def _vocabulary(fields: Fields, byte_level: bool) -> Vocabulary:
    tokens = _strings(fields, "tokens")
    if (longest := max(map(len, tokens), default=0)) > MAX_PIECE:
        index = next(index for index, text in enumerate(tokens) if len(text) == longest)
        which = f"number {index}: {longest}"
        fields.fail("tokens", f"holds a token of more than {MAX_PIECE} characters ({which})")
    declared = _numbers(fields, "token_type", len(tokens), Kind.NORMAL)
    kinds = declared.astype(np.uint8)
    kinds[kinds == _UNDEFINED] = Kind.NORMAL
    if not ((kinds == declared) | (declared == _UNDEFINED)).all() or (kinds > max(Kind)).any():
        fields.fail("token_type", f"must hold numbers from {min(Kind)} to {max(Kind)}")
    if not byte_level:
        for token in np.flatnonzero((kinds != Kind.BYTE) & (kinds != Kind.UNUSED)).tolist():
            if is_byte_token(tokens[token]):
                kinds[token] = Kind.BYTE
        unknown = [*_tokens(fields, "unknown_token_id", len(tokens)), 0]
        if tokens and Kind.UNKNOWN not in kinds and tokens[unknown[0]] == "<unk>":
            kinds[unknown[0]] = Kind.UNKNOWN
    vocabulary = Vocabulary(tokens, kinds.tobytes(), byte_level)
    for text, token in vocabulary.ids(Kind.BYTE).items():
        if not is_byte_token(text):
            fields.fail(f"tokens[{token}]", f"is no byte: {shown(text)}")
    need_addresses(vocabulary.encoder_bytes, "the tokenizer")
    return vocabulary


def _merges(fields: Fields, tokens: Sequence[str]) -> list[tuple[str, str]]:
    stored = _strings(fields, "merges")
    # A loop over 100,000 merges would take three times as long as these maps.
    merges: list[Any] = list(map(tuple, map(str.split, stored, repeat(" "), repeat(1))))
    if not set(map(len, merges)) <= {2}:
        index = next(index for index, merge in enumerate(merges) if len(merge) != 2)
        fields.fail(f"merges[{index}]", f"is not two tokens: {shown(merges[index][0])}")
    longest = max(stored, key=len, default="")
    if len(longest) - 1 > max(map(len, tokens)):  # the library would panic
        fields.fail("merges", f"make a token that is not there: {shown(longest)}")
    return merges


def _by_merges(
    fields: Fields, vocabulary: Vocabulary, split: Split | None, template: str | None, declared: list[int]
) -> tuple[Vocabulary, Encoder]:
    """The vocabulary with each token's kind as it is used, and what encodes by the file's merges.

    split: of a byte-level vocabulary; None: the merges are of characters, as SentencePiece has them.
    """
    merges = _merges(fields, vocabulary.tokens)
    space_prefix = split is None and fields.boolean("add_space_prefix", default=False)

    @cache
    def made() -> set[str]:
        return {left + right for left, right in merges}

    def encoder() -> Encoder:
        if split is None:
            return with_byte_fallback(vocabulary, merges, space_prefix)
        return byte_level(vocabulary, merges, split)

    letters = vocabulary.ids(Kind.CONTROL, Kind.UNUSED).keys() & BYTE_ALPHABET.keys()
    if letters:
        vocabulary = without_marks(vocabulary, letters)
    vocabulary = with_marks(vocabulary, template, declared, lambda text: text in made())
    try:
        return vocabulary, encoder()
    except ValueError:  # merges of control tokens, for example: those are none
        vocabulary = without_marks(vocabulary, made().union(*merges))
        return vocabulary, encoder()


def _by_scores(
    fields: Fields, vocabulary: Vocabulary, template: str | None, declared: list[int]
) -> tuple[Vocabulary, Encoder]:
    """The vocabulary with each token's kind as it is used, and what encodes by the file's scores."""
    scores = _numbers(fields, "scores", len(vocabulary), 0.0)
    # A control token has no score: it never competes with others for text.
    scored = (np.frombuffer(vocabulary.kinds, np.uint8) == Kind.CONTROL) & (scores < 0)
    words = [vocabulary.tokens[token] for token in np.flatnonzero(scored).tolist()]
    vocabulary = without_marks(vocabulary, [word for word in words if not is_marker(word)])
    vocabulary = with_marks(vocabulary, template, declared)
    space_prefix = fields.boolean("add_space_prefix", default=True)
    return vocabulary, with_byte_fallback(
        vocabulary, scored_merges(vocabulary, scores.tolist()), space_prefix
    )


def _takes_space(file: GGUFFile, vocabulary: Vocabulary) -> frozenset[int]:
    """The control tokens that swallow the white space behind them.

    GGUF has no place for that. Phi-3's tokenizer.json has it for all markers of its template, which writes a
    line end behind each of them.
    """
    if file.fields().string("general.architecture", default="") != "phi3":
        return frozenset()
    control = vocabulary.ids(Kind.CONTROL)
    return frozenset(token for text, token in control.items() if text not in _TEXT_FOLLOWS)


def tokenizer_from_gguf(file: GGUFFile, generation: Generation) -> Tokenizer:
    """The tokenizer of an opened GGUF file.

    Raises EngineError(model_invalid) naming the key: broken, or a kind of tokenizer that is not supported.
    """
    fields = file.fields("tokenizer.ggml.")
    model = fields.string("model")
    if model not in _MODELS:
        kind = f"{_OTHERS[model]}; " if model in _OTHERS else ""
        supported = f"{', '.join(_MODELS[:-1])} and {_MODELS[-1]} are"
        fields.fail("model", f"{shown(model)} is not supported ({kind}{supported})")
    vocabulary = _vocabulary(fields, model == "gpt2")
    known = generation.within(len(vocabulary))
    marks = known.chat_template, [*known.bos_ids, *known.end_ids]
    add_bos, after = True, frozenset[int]()
    try:
        if model == "gpt2":
            pre = fields.string("pre", default="default")  # files of before May 2024 do not have it
            if pre not in SPLITS:
                fields.fail("pre", f"{shown(pre)} is not supported: how such a model cuts text is not known")
            add_bos = SPLITS[pre].add_bos
            vocabulary, encoder = _by_merges(fields, vocabulary, SPLITS[pre], *marks)
        elif model == "gemma4":
            vocabulary, encoder = _by_merges(fields, vocabulary, None, *marks)
        else:
            vocabulary, encoder = _by_scores(fields, vocabulary, *marks)
            after = _takes_space(file, vocabulary)
        # Files of Gemma 4's first weeks say false, and the model is lost without.
        add_bos = model == "gemma4" or fields.boolean("add_bos_token", default=add_bos)
        return Tokenizer(
            vocabulary,
            encoder,
            generation,
            bos_id=next(iter(known.bos_ids), None),
            eos_id=next(iter(known.eos_ids), None),
            add_bos=add_bos,
            after=after,
            named={
                f"{name}_token": vocabulary.tokens[token]
                for name, key in (("unk", "unknown"), ("pad", "padding"))
                for token in _tokens(fields, f"{key}_token_id", len(vocabulary))
            },
        )
    except ValueError as error:
        fields.refuse(f"the tokenizer is not valid: {error}")
