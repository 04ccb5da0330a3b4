"""Which parts of an answer came of tokens that the model was not sure of."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from engine import TextDelta, TokenLogprob

Level = Literal["doubtful", "unlikely"]

DOUBTFUL = 0.5
UNLIKELY = 0.2
"""Below these probabilities a token is marked: another one was likelier, or most of it pointed elsewhere."""

_PART = "\ufffd"


class Doubt(NamedTuple):
    """Characters `start` to before `end` of an answer, and how unsure the model was of them."""

    start: int
    end: int
    level: Level


class Doubts:
    """The doubtful parts of one answer while it comes. tokens: of the answer; spans: in order, without blanks
    around them.

    The engine counts characters of the whole reply. Of that the answer is one piece, as far as that can be
    told: what is elsewhere, because marks of thinking were cut out of it, is not marked.
    """

    def __init__(self, before: int = 0, earlier: Doubts | None = None) -> None:
        """before: characters of the answer that were there before; earlier: what is known of them."""
        self.spans: list[Doubt] = [] if earlier is None else [*earlier.spans]
        self.tokens: int = 0 if earlier is None else earlier.tokens
        self._before = before
        self._raw = ""
        self._shift: int | None = None  # from a place in the reply to that in the answer
        self._waiting: deque[TokenLogprob] = deque()
        self._part = 0.0  # the least log-probability of the parts of a character

    def push(self, delta: TextDelta, new: str, answer: str) -> None:
        """Take in what the engine sent. new: what that gave of the answer, which is `answer` now."""
        if not delta.logprobs:
            return
        if self._shift is None:
            self._raw += delta.text
            if new:
                self._shift, self._raw = self._before - self._raw.rfind(new), ""
        self._waiting.extend(delta.logprobs)
        while self._shift is not None and self._waiting:
            entry, start = self._waiting[0], self._waiting[0].offset + self._shift
            if len(self._waiting) > 1:
                end = self._waiting[1].offset + self._shift
            elif _PART in entry.text:
                break
            else:
                end = start + len(entry.text)
            if end > len(answer):
                break  # its text is held back, or it has none
            self._waiting.popleft()
            self._add(entry, start, end, answer)

    def _add(self, entry: TokenLogprob, start: int, end: int, answer: str) -> None:
        part = _PART in entry.text
        least, self._part = min(entry.logprob, self._part), 0.0
        if start == end:  # the beginning of a character, or a token that is structure
            self._part = least if part else 0.0
        elif part or answer[start:end] == entry.text:
            self.tokens += 1
            text = answer[start:end]
            if math.exp(least) < DOUBTFUL and (word := text.strip()):
                level: Level = "unlikely" if math.exp(least) < UNLIKELY else "doubtful"
                start += text.index(word)
                self.spans.append(Doubt(start, start + len(word), level))
