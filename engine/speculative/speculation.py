"""How many drafts each step computes, and what came of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..sequence import Sequence
from ..step_plan import StepPlan
from .chances import Chances
from .costs import StepCosts
from .drafter import Drafter, Proposal

WIDEST = 8
"""Drafts of a sequence in a step, at most, when their number adapts."""

MOST_DRAFTS = 64
"""Drafts of all sequences in a step then: a batch that has more to compute gains nothing by guessing."""

PLAIN_EVERY = 64
"""Of so many steps with drafts one has none: else the cost of that would not be known for long."""

LEAST = 0.1
"""A guess with less of a chance is not weighed: nowhere is a row that cheap."""

LARGEST = 512
"""Rows of a step at most that has drafts then."""

GAIN = 1.04
"""Tokens a second must be expected to rise by so much: estimates are a few percent off."""

_NONE_FOUND = "nothing repeats"
_UNLIKELY = "too few are right"
_COSTLY = "rows cost too much"


class DraftFigures(NamedTuple):
    """What came of drafts so far.

    name: of the drafter. off: why the latest decode step had no drafts; "" if it had some. tried, kept: by
    place, first drafts first.
    """

    name: str = ""
    off: str = ""
    tried: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()


def most_drafts(window: int | None, sequences: int) -> int:
    """Drafts of a step at most; window: of each sequence, None if it adapts."""
    return min(WIDEST * sequences, MOST_DRAFTS) if window is None else window * sequences


class Speculation:
    """Decides how many of a drafter's guesses are computed.

    window: so many for each sequence, as long as there are guesses; None: as many as pay. Then the step of
    those is taken that promises the most tokens a second, from the chance of each guess and the measured cost
    of a row, if it promises enough more than the step without. How many are computed may depend on times and
    on other conversations; what is sampled does not depend on how many are computed.
    """

    def __init__(self, drafter: Drafter, window: int | None, sequences: int) -> None:
        self._drafter = drafter
        self._window = window
        self._most = most_drafts(window, sequences)
        self._costs = StepCosts(min(sequences + self._most, LARGEST))
        self._chances: WeakKeyDictionary[Sequence, Chances] = WeakKeyDictionary()
        self._proposals: dict[int, Proposal] = {}
        self._off = _NONE_FOUND
        self._in_a_row = 0  # steps with drafts
        self._tried = [0] * (window or WIDEST)
        self._kept = [0] * (window or WIDEST)

    @property
    def figures(self) -> DraftFigures:
        """For other threads: a copy."""
        return DraftFigures(self._drafter.name, self._off, tuple(self._tried), tuple(self._kept))

    def draft(self, sequences: list[Sequence], room: Callable[[Sequence], int]) -> None:
        """Give the sequences their drafts for the next step. room: tokens a reply can still get."""
        self._proposals = {}
        if not sequences:
            return
        widest = self._window or WIDEST
        proposals = self._drafter.propose(sequences, widest)
        self._proposals = {
            sequence.id: proposal
            for sequence, proposal in zip(sequences, proposals, strict=True)
            if proposal.tokens
        }
        if not self._proposals:
            self._off = _NONE_FOUND
            return
        # The model's own token comes after the drafts: one fewer than there is room for can be of use.
        guessed = [
            (sequence, proposal, min(len(proposal.tokens), widest, room(sequence) - 1))
            for sequence, proposal in zip(sequences, proposals, strict=True)
            if proposal.tokens
        ]
        if self._window is None:
            counts = self._paying(guessed, len(sequences))
        else:
            counts = [most for _, _, most in guessed]
        for (sequence, proposal, _), count in zip(guessed, counts, strict=True):
            if count > 0:
                sequence.drafts = array("i", proposal.tokens[:count])

    def observe(self, plan: StepPlan, accepted: list[list[int]], seconds: float) -> None:
        """Take in a committed step. accepted: for each run the tokens its sequence went on with."""
        drafted = 0
        for run, tokens in zip(plan.runs, accepted, strict=True):
            proposal = self._proposals.get(run.sequence.id)
            if proposal is None or not run.decoding:
                continue
            if self._window is None:
                self._chances_of(run.sequence).compare(proposal, tokens)
            drafted += run.count - 1
            for place in range(run.count - 1):
                self._tried[place] += 1
                self._kept[place] += place + 1 < len(tokens)
        self._in_a_row = self._in_a_row + 1 if drafted else 0
        if drafted:
            self._off = ""
        if self._window is None and plan.prefill_tokens == 0:
            self._costs.observe(plan.tokens, seconds)

    def _paying(self, guessed: list[tuple[Sequence, Proposal, int]], rows: int) -> list[int]:
        """How many drafts each gets: the likeliest of all, as many as promise the most tokens a second."""
        counts = [0] * len(guessed)
        costs = self._costs
        if not costs.known or self._in_a_row >= PLAIN_EVERY:
            return counts
        likely: list[tuple[float, int]] = []
        for index, (sequence, proposal, most) in enumerate(guessed):
            each = chance = self._chances_of(sequence).of(proposal.grade)
            for _ in range(most):
                if chance < LEAST:
                    break
                likely.append((chance, index))
                chance *= each
        likely.sort(reverse=True)
        del likely[max(0, min(self._most, costs.most - rows)) :]
        if rows > costs.most:
            self._off = _COSTLY
            return counts
        plain = best = GAIN * rows / costs.of(rows)
        taken, expected = 0, float(rows)
        for number, (chance, _) in enumerate(likely, 1):
            expected += chance
            if (speed := expected / costs.of(rows + number)) > best:
                best, taken = speed, number
        if best == plain:
            self._off = _UNLIKELY if not likely or likely[0][0] < 0.5 else _COSTLY
        for _, index in likely[:taken]:
            counts[index] += 1
        return counts

    def _chances_of(self, sequence: Sequence) -> Chances:
        chances = self._chances.get(sequence)
        if chances is None:
            chances = self._chances[sequence] = Chances()
        return chances
