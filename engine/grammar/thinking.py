"""The part of a reply that a model thinks in, which no grammar holds for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ..tokenization import Tokenizer
from ..tokenization.control import is_marker
from ..tokenization.vocabulary import THOUGHTS

_ANSWERS = {"<|channel|>analysis<|message|>": "<|channel|>final<|message|>"}
"""What begins the answer of a model whose replies are messages, each of which says what it is."""


Part = Literal["start", "thinking", "answer"]
"""Where a reply is. At its start it may begin to think, or to answer."""

_TAIL = 8
"""Tokens at the end of a prompt among which a template's mark is looked for: white space may follow it."""


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


def part_after(tokenizer: Tokenizer, marks: Marks, prompt: Sequence[int]) -> Part:
    """Where a reply begins, by the end of a prompt that a chat template has written."""
    if marks.always:
        return "thinking"
    for place in range(len(prompt) - 1, max(-1, len(prompt) - _TAIL), -1):
        if prompt[place] in (marks.opening, marks.closing[-1]) and not _text(tokenizer, prompt[place + 1 :]):
            return "thinking" if prompt[place] == marks.opening else "answer"
    return "start"


def _text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids).strip()


def answer_begun(text: str) -> str | None:
    """What a reply to be continued has of its answer; None: it is still thinking."""
    for opening, closing in THOUGHTS.items():
        if text.startswith(opening):
            _, found, answer = text.partition(closing)
            return answer.lstrip() if found else None
    return text
