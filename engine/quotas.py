"""How many tokens of a step each sequence gets, from where they stand: of now, or behind a step under way."""

from __future__ import annotations

from typing import NamedTuple

from .sequence import Sequence
from .step_plan import Run

SCORED_ROWS = 64
"""Rows a step whose logits `score` may ask for: bounds the logits in memory."""


class Standing(NamedTuple):
    """How far a sequence is: of so many tokens so many are computed. The last one need not be known."""

    sequence: Sequence
    computed: int
    length: int

    @classmethod
    def now(cls, sequence: Sequence) -> Standing:
        """As things are."""
        return cls(sequence, sequence.computed, len(sequence.tokens))

    @classmethod
    def after(cls, run: Run) -> Standing:
        """When a run without drafts is computed, if that does not end the reply."""
        sampled = bool(run.samples) and not run.sequence.score
        return cls(run.sequence, run.end, len(run.sequence.tokens) + sampled)

    @property
    def remaining(self) -> int:
        """See `Sequence`."""
        return self.length - self.computed

    @property
    def decoding(self) -> bool:
        """See `Sequence`."""
        return self.remaining == 1 and not self.sequence.score

    def run(self, count: int) -> Run:
        """The next tokens of the sequence, at most those that remain."""
        samples = count if self.sequence.score else int(count == self.remaining)
        return Run(self.sequence, self.computed, count, samples)


def quotas(
    standings: list[Standing], *, most: int, most_beside: int, focused: int | None = None
) -> dict[int, int]:
    """Tokens each sequence gets, by its number: the last one in decode; prefills share what is left.

    most: tokens of the step. most_beside: those of prefills, if others decode. Half of that goes to the
    prefill admitted first (to the focused one, if it is among them), so that every prompt gets done; the rest
    to the shortest first, so that a short question does not wait for a long paste.
    """
    prefills = [each for each in standings if not each.decoding]
    found = {each.sequence.id: 1 for each in standings if each.decoding}
    if not prefills:
        return found
    budget = most - len(found)
    if found:
        budget = min(budget, most_beside)
    scored = SCORED_ROWS
    first = min(prefills, key=lambda each: each.sequence.id != focused)
    shares = [(first, budget if len(prefills) == 1 else -(-budget // 2))]
    shares += [(each, budget) for each in sorted(prefills, key=lambda each: each.remaining)]
    for each, share in shares:
        have = found.get(each.sequence.id, 0)
        more = min(each.remaining - have, share, budget)
        if each.sequence.score:
            more = min(more, scored)
            scored -= more
        found[each.sequence.id] = have + more
        budget -= more
    return found
