"""Drafters whose guesses are right or wrong as a test wants them, and models that come with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Tokens
from dataclasses import replace
from typing import Any

from engine import EngineConfig
from engine.model import LoadedModel, load_model
from engine.sequence import Sequence
from engine.speculative.drafter import Proposal

RULES: Mapping[str, Callable[[int, int], bool]] = {
    "right": lambda request, place: True,
    "wrong": lambda request, place: False,
    "odd": lambda request, place: place % 2 == 1,
    "mixed": lambda request, place: (request * 7 + place * 3) % 5 != 0,
}
"""Whether the draft for a place in the reply of a request is right."""


class ScriptedDrafter:
    """Drafts from replies that are known by the number of their request; behind their end it makes some up.

    too_long: it proposes more than may be.
    """

    name = "scripted"

    def __init__(
        self, replies: Mapping[int, Tokens[int]], rule: str, window: int, *, too_long: bool = False
    ) -> None:
        self._replies = replies
        self._right = RULES[rule]
        self._count = 20 * window if too_long else window

    def propose(self, sequences: list[Sequence], most: int) -> list[Proposal]:
        return [
            Proposal([self._draft(sequence, sequence.output_length + ahead) for ahead in range(self._count)])
            for sequence in sequences
        ]

    def _draft(self, sequence: Sequence, place: int) -> int:
        reply = self._replies.get(sequence.id, ())
        token = reply[place] if place < len(reply) else 5
        return token if self._right(sequence.id, place) else token ^ 1


class DraftedModel:
    """A model, given by its path or scripted, with a drafter."""

    def __init__(self, model: Any, drafter: ScriptedDrafter) -> None:
        self._model = model
        self._drafter = drafter

    def load(self, config: EngineConfig) -> LoadedModel:
        return replace(load_model(replace(config, model=self._model)), drafter=self._drafter)
