"""A model's tokens and the bytes each of them stands for."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate
from typing import overload

import numpy as np

SPACE = "▁"
"""How SentencePiece vocabularies write a space (arXiv 1808.06226)."""

TURN_ENDS = (
    "<|im_end|>",
    "<|return|>",
    "<|call|>",
    "<turn|>",
    "<|tool_response>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endofturn|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "<eos>",
)
"""Tokens that end a turn wherever they exist, also in files that declare only one of several end tokens."""

SENTENCE_END = "</s>"
"""Ends a turn where it is a control token; elsewhere it is a tag of HTML like others (Gemma 3)."""

MESSAGE_END = "<|end|>"
"""Ends a turn, but not where one is made of several messages: there, one of `LAST_MESSAGE_ENDS` does."""

LAST_MESSAGE_ENDS = frozenset(["<|return|>", "<|call|>"])  # OpenAI's harmony format

MAX_PIECE = 1 << 10
"""Characters of a token."""

THOUGHTS = {
    "<think>": "</think>",
    "[THINK]": "[/THINK]",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|start|>",
}
"""How replies begin to think, and what ends that."""

# fmt: off
VISIBLE = frozenset([
    "<think>", "</think>", "[THINK]", "[/THINK]", "<|channel>", "<channel|>",
    "<|start|>", "<|channel|>", "<|message|>",
])
# fmt: on
"""Control tokens that count as text when they are written: who reads a reply looks for them."""

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Kind(IntEnum):
    """What a token is for; the numbers are GGUF's (`tokenizer.ggml.token_type`)."""

    NORMAL = 1
    UNKNOWN = 2  # stands for text the vocabulary can't express
    CONTROL = 3  # structure: written by chat templates, means nothing as text
    USER_DEFINED = 4  # one token wherever its text occurs
    UNUSED = 5  # fills the table up
    BYTE = 6  # <0x0A>: one byte of text the vocabulary has no piece for


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in GPT-2's vocabulary: itself, or one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_ALPHABET = _byte_alphabet()


def is_byte_token(text: str) -> bool:
    """Whether this is the name of a byte token."""
    return _BYTE.fullmatch(text) is not None


class Texts(Sequence[str]):
    """Many short texts as one long one: a list of them would take ten times the memory."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._joined = "".join(texts)
        self._ends = array("I", accumulate(map(len, texts)))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        at = range(len(self))[index]  # IndexError: there is none
        return self._joined[self._ends[at - 1] if at else 0 : self._ends[at]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Every token by id.

    tokens: texts as stored. kinds: one `Kind` a byte. byte_level: normal tokens are written in the byte
    alphabet, else with SentencePiece's mark for a space.
    """

    tokens: Sequence[str]
    kinds: bytes
    byte_level: bool

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(self.kinds), (len(self.tokens), len(self.kinds))

    @property
    def encoder_bytes(self) -> int:
        """About what the library takes of the memory to be made of this vocabulary."""
        return (16 << 20) + 800 * len(self)

    def __len__(self) -> int:
        return len(self.tokens)

    def compact(self) -> Vocabulary:
        """The same to keep: looking through all of it takes longer, and it takes less memory."""
        return replace(self, tokens=Texts(self.tokens))

    def ids(self, *kinds: Kind) -> dict[str, int]:
        """The ids of the tokens of these kinds by their texts; not of those without a text.

        Of tokens with the same text the first one counts; the others only decode.
        """
        found = np.flatnonzero(np.isin(np.frombuffer(self.kinds, np.uint8), kinds)).tolist()
        ids = dict(zip(map(self.tokens.__getitem__, found), found, strict=True))
        if len(ids) < len(found):
            ids.update(zip(map(self.tokens.__getitem__, found[::-1]), found[::-1], strict=True))
        ids.pop("", None)
        return ids

    def first_difference(self, other: Vocabulary) -> int | None:
        """The first id that means something else in another vocabulary, or nothing; None if there is none.

        What fills a table up means nothing, and the other may have further tokens.
        """
        common = min(len(self), len(other))
        if self.tokens[:common] != other.tokens[:common]:
            for token in range(common):
                unused = Kind.UNUSED in (self.kinds[token], other.kinds[token])
                if self.tokens[token] != other.tokens[token] and not unused:
                    return token
        lacking = range(common, len(self))
        return next((token for token in lacking if self.kinds[token] != Kind.UNUSED), None)

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to the text; nothing for control and unused tokens and for ids past the end."""
        if not 0 <= token < len(self.tokens):
            return b""
        kind, text = self.kinds[token], self.tokens[token]
        if kind in (Kind.NORMAL, Kind.USER_DEFINED) and not self.byte_level:
            return text.replace(SPACE, " ").encode()
        if kind == Kind.NORMAL:
            try:
                return bytes([BYTE_ALPHABET[character] for character in text])
            except KeyError:  # a token added as plain text
                return text.encode()
        if kind == Kind.BYTE:
            return bytes([int(text[3:5], 16)])
        return text.encode() if kind == Kind.USER_DEFINED or text in VISIBLE else b""
