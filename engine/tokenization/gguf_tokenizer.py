"""The tokenizer in a GGUF file's metadata (`tokenizer.ggml.*`)."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..loading.fields import REQUIRED, Fields
from ..loading.generation import read_gguf_generation
from ..loading.gguf import GGUFFile
from .byte_pair import SPLITS, byte_level, sentencepiece
from .tokenizer import Tokenizer
from .vocabulary import TURN_ENDS, Kind, Vocabulary, is_byte_token

_MAX_PIECE = 1 << 10


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


def _vocabulary(fields: Fields, byte_level: bool) -> Vocabulary:
    tokens = _strings(fields, "tokens")
    declared = _numbers(fields, "token_type", len(tokens), Kind.NORMAL)
    kinds = declared.astype(np.uint8)
    if not ((kinds == declared) & (kinds >= min(Kind)) & (kinds <= max(Kind))).all():
        fields.fail("token_type", f"must hold numbers from {min(Kind)} to {max(Kind)}")
    for index in np.flatnonzero(kinds == Kind.USER_DEFINED):
        if tokens[index] in TURN_ENDS:  # a mistake seen in many files; it would let any text end a turn
            kinds[index] = Kind.CONTROL
    vocabulary = Vocabulary(tokens, kinds.tobytes(), byte_level)
    if len(set(tokens)) != len(tokens):
        fields.fail("tokens", "lists a token twice")
    for text, token in vocabulary.ids(Kind.BYTE).items():
        if not is_byte_token(text):
            fields.fail(f"tokens[{token}]", f"is no byte: {text[:20]!r}")
    return vocabulary


def _merges(fields: Fields) -> list[tuple[str, str]]:
    # A loop over 100,000 merges would take three times as long as these maps.
    merges: list[Any] = list(map(tuple, map(str.split, _strings(fields, "merges"), repeat(" "), repeat(1))))
    if not set(map(len, merges)) <= {2}:
        index = next(index for index, merge in enumerate(merges) if len(merge) != 2)
        fields.fail(f"merges[{index}]", f"is not two tokens: {merges[index][0][:40]!r}")
    return merges


def tokenizer_from_gguf(file: GGUFFile) -> Tokenizer:
    """The tokenizer of an opened GGUF file.

    Raises EngineError(model_invalid) naming the key: broken, or a kind of tokenizer that is not supported.
    """
    fields = Fields(file.path, file.metadata, "tokenizer.ggml.")
    model = fields.string("model")
    if model not in ("gpt2", "llama"):
        fields.fail("model", f"{model[:60]!r} is not supported (gpt2 and llama are)")
    vocabulary = _vocabulary(fields, model == "gpt2")
    try:
        if model == "gpt2":
            pre = fields.string("pre")
            if pre not in SPLITS:
                fields.fail("pre", f"{pre[:60]!r} is not supported ({', '.join(SPLITS)} are)")
            encoder = byte_level(vocabulary, _merges(fields), SPLITS[pre])
            add_bos = SPLITS[pre].add_bos
        else:
            if any(len(token) > _MAX_PIECE for token in vocabulary.tokens):
                fields.fail("tokens", f"holds a token of more than {_MAX_PIECE} characters")
            scores = _numbers(fields, "scores", len(vocabulary), 0.0).tolist()
            space_prefix = fields.boolean("add_space_prefix", default=True)
            encoder = sentencepiece(vocabulary, scores, space_prefix)
            add_bos = True
        generation = read_gguf_generation(file, len(vocabulary))
        return Tokenizer(
            vocabulary,
            encoder,
            bos_id=generation.bos_id,
            eos_id=next(iter(fields.token_ids("eos_token_id", len(vocabulary))), None),
            add_bos=fields.boolean("add_bos_token", default=add_bos),
            end_ids=generation.end_ids,
            chat_template=generation.chat_template,
        )
    except ValueError as error:
        fields.refuse(f"the tokenizer is not valid: {error}")
