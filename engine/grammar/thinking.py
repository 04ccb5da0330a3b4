"""The part of a reply that a model thinks in, which no grammar holds for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..tokenization import Tokenizer
from ..tokenization.control import is_marker
from ..tokenization.vocabulary import THOUGHTS

_ANSWERS = {"<|channel|>analysis<|message|>": "<|channel|>final<|message|>"}
"""What begins the answer of a model whose replies are messages, each of which says what it is."""


class Marks(NamedTuple):
    """How a model thinks, in tokens. opening: the first of what begins it; closing: all of what ends it.

    always: the reply begins like this also where the model does not think.
    """

    opening: int
    closing: tuple[int, ...]
    always: bool = False


def marks_of(tokenizer: Tokenizer, vocabulary: int) -> Marks | None:
    """The marks that a vocabulary has as tokens of their own; None: its model does not think."""
    for opening, closing in THOUGHTS.items():
        first = _tokens(tokenizer, opening)[0]
        last = _tokens(tokenizer, _ANSWERS.get(opening, closing))
        texts = [tokenizer.token_text(token) for token in (first, last[0]) if token < vocabulary]
        if len(texts) == 2 and all(map(is_marker, texts)) and opening.startswith(texts[0]):
            return Marks(first, tuple(last), opening in _ANSWERS)
    return None


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    ids = tokenizer.encode(text)
    return ids[1:] if ids[:1] == [tokenizer.bos_id] and tokenizer.add_bos else ids


def begins_inside(tokenizer: Tokenizer, marks: Marks, prompt: Sequence[int]) -> bool:
    """Whether a prompt, written by a chat template, ends with the beginning of a reply's thinking."""
    for place in range(len(prompt) - 1, max(-1, len(prompt) - 8), -1):
        if prompt[place] == marks.opening:
            return not tokenizer.decode(prompt[place + 1 :]).strip()
    return False


def answer_begun(text: str) -> str | None:
    """What a reply to be continued has of its answer; None: it is still thinking."""
    for opening, closing in THOUGHTS.items():
        if text.startswith(opening):
            _, found, answer = text.partition(closing)
            return answer.lstrip() if found else None
    return text
