"""How many drafts each step computes, and what came of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..sequence import Places, Sequence
from ..step_plan import StepPlan
from .chances import EXPECTED, Chances
from .costs import StepCosts
from .drafter import GRADES, ComputingDrafter, Drafter, Pass, Proposal

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

GAIN, DOUBT = 1.04, 0.001
"""Tokens a second must be expected to rise by so much, and by so much more for each draft: estimates are a
few percent off, and of many numbers of rows the one that looks best is likely estimated too well.
"""

PATIENCE, LONGEST_PATIENCE = 32, 512
"""After so many steps without drafts that cost time, one reply gets some: else nobody would know whether they
pay by now. Each time in vain it takes twice as long to the next try.
"""

TRIED = 2
"""So many drafts it gets then."""

ATTENTION, REST = 16, 4
"""After so many steps without drafts, in a batch that stays as large, one of so many is looked at: what is
found each time and pays at no time costs more than to come some tokens late.
"""

SUPPOSED = 0.6
"""That a guess of a model is right, before one has been compared with what came."""

_NONE_FOUND = "nothing repeats"
_UNLIKELY = "too few are right"
_COSTLY = "rows cost too much"
_UNMEASURED = "no step has been measured"
_UNABLE = "the draft model can't go on"
_READING = "the draft model reads the text"


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


class Candidate(NamedTuple):
    """A reply that drafts may be made for: the chance of each, if those before it are right, and how many it
    can get.
    """

    sequence: Sequence
    chance: float
    most: int


class Speculation:
    """Decides how many of a drafter's guesses are computed.

    window: so many for each sequence, as long as there are guesses; None: as many as pay. Then the step of
    those is taken that promises the most tokens a second, from the chance of each guess and the measured cost
    of a row (and of guessing, where that takes time), if it promises enough more than the step without. How
    many are computed may depend on times and on other conversations; what is sampled does not depend on how
    many are computed.
    """

    def __init__(self, drafter: Drafter | ComputingDrafter, window: int | None, sequences: int) -> None:
        self._name = drafter.name
        self._computing = drafter if isinstance(drafter, ComputingDrafter) else None
        self._free = None if isinstance(drafter, ComputingDrafter) else drafter
        self._window = window
        self._most = most_drafts(window, sequences)
        self._costs = StepCosts(min(sequences + self._most, LARGEST))
        self._pass_costs = StepCosts(sequences)  # of a drafter, in units of the model's steps
        self._chances: WeakKeyDictionary[Sequence, Chances] = WeakKeyDictionary()
        self._overall = Chances((SUPPOSED,) * GRADES)
        self._proposals: dict[int, Proposal] = {}
        self._passes: list[Pass] = []
        self._off = _NONE_FOUND
        self._in_a_row = 0  # steps with drafts
        self._waited = 0  # steps without
        self._rows, self._idle = 0, 0  # sequences of the latest step; steps of so many without drafts
        self._resting = False
        self._patience = PATIENCE
        self._trying = False
        self._tries = 0
        self._tried, self._kept = Places(), Places()

    @property
    def figures(self) -> DraftFigures:
        """For other threads: a copy."""
        tried = self._tried.counts()
        return DraftFigures(self._name, self._off, tried, self._kept.counts(len(tried)))

    @property
    def passes(self) -> list[Pass]:
        """Those that the guesses for the latest step took."""
        return self._passes

    @property
    def traffic(self) -> int:
        """Bytes that guessing has moved in the latest step."""
        return sum(each.traffic for each in self._passes)

    def draft(self, sequences: list[Sequence], room: Callable[[Sequence], int]) -> None:
        """Give the sequences their drafts for the next step, or zeros for drafts that `guess` will make.

        room: tokens a reply can still get.
        """
        self._proposals, self._passes = {}, []
        if len(sequences) != self._rows:
            self._rows, self._idle = len(sequences), 0
        self._resting = self._window is None and self._idle > ATTENTION and self._idle % REST != 0
        if not sequences or self._resting:
            return
        # The model's own token comes after the drafts: one fewer than there is room for can be of use.
        if self._free is not None:
            candidates = self._found(self._free, sequences, room)
        else:
            candidates = self._possible(sequences, room)
        if not candidates:
            if self._free is not None:
                self._off = _NONE_FOUND
            return
        if self._window is None:
            counts = self._paying(candidates, len(sequences))
        else:
            counts = [most for _, _, most in candidates]
        for (sequence, _, _), count in zip(candidates, counts, strict=True):
            if count > 0:
                found = self._proposals.get(sequence.id)
                sequence.drafts = array("i", found.tokens[:count] if found else [0] * count)

    def _found(
        self, drafter: Drafter, sequences: list[Sequence], room: Callable[[Sequence], int]
    ) -> list[Candidate]:
        """Sequences that there are guesses for."""
        widest = self._window or WIDEST
        candidates = []
        for sequence, proposal in zip(sequences, drafter.propose(sequences, widest), strict=True):
            if proposal.tokens and sequence.constraint is not None:
                permitted = sequence.constraint.permitted(proposal.tokens[:widest])
                proposal = proposal._replace(tokens=proposal.tokens[:permitted])
            if proposal.tokens:
                self._proposals[sequence.id] = proposal
                most = min(len(proposal.tokens), widest, room(sequence) - 1)
                candidates.append(Candidate(sequence, self._chances_of(sequence).of(proposal.grade), most))
        return candidates

    def _possible(self, sequences: list[Sequence], room: Callable[[Sequence], int]) -> list[Candidate]:
        """Sequences that guesses can be made for, if they are wanted."""
        assert self._computing is not None
        limits = [self._computing.limit(sequence) for sequence in sequences]
        if not any(limits):
            self._off = _UNABLE
        widest = self._window or WIDEST
        return [
            Candidate(sequence, self._chances_of(sequence).of(0), most)
            for sequence, limit in zip(sequences, limits, strict=True)
            if (most := min(widest, room(sequence) - 1, limit)) > 0
        ]

    def guess(self, plan: StepPlan) -> None:
        """Have the drafts made that the plan has rows for, if that takes time; it keeps those that are."""
        if self._computing is None:
            return
        self._passes = self._computing.guess(plan)
        for index, run in enumerate(plan.runs):
            if not run.decoding or run.count == 1:
                continue
            made = run.sequence.drafts
            if made:
                self._proposals[run.sequence.id] = Proposal(made[:])
            if len(made) < run.count - 1:
                plan.runs[index] = replace(run, count=1 + len(made), samples=1 + len(made))
                self._off = _READING

    def observe(self, plan: StepPlan, accepted: list[list[int]], seconds: float) -> None:
        """Take in a committed step. accepted: for each run the tokens its sequence went on with."""
        self._idle += 1
        self._waited += 1
        if self._resting:
            return
        drafted = 0
        for run, tokens in zip(plan.runs, accepted, strict=True):
            proposal = self._proposals.get(run.sequence.id)
            if proposal is None or not run.decoding:
                continue
            if self._window is None:
                self._chances_of(run.sequence).compare(proposal, tokens)
                if self._computing is not None:
                    self._overall.compare(proposal, tokens)
            drafted += run.count - 1
            self._tried.add(run.count - 1)
            self._kept.add(len(tokens) - 1)
        self._in_a_row = self._in_a_row + 1 if drafted else 0
        if drafted:
            self._idle = self._waited = 0
            self._off = ""
            if self._trying:
                self._trying = False
                self._tries += 1
                self._patience = min(2 * self._patience, LONGEST_PATIENCE)
        if self._window is None and plan.prefill_tokens == 0:
            guessing = sum(each.seconds for each in self._passes)
            self._costs.observe(plan.tokens, seconds - guessing)
            for each in self._passes:
                self._pass_costs.observe(each.rows, each.seconds / self._costs.pace)

    def _paying(self, candidates: list[Candidate], rows: int) -> list[int]:
        """How many drafts each gets: the likeliest of all, as many as promise the most tokens a second."""
        counts = [0] * len(candidates)
        costs, computing = self._costs, self._computing is not None
        if not costs.known:
            self._off = _UNMEASURED
            return counts
        if self._in_a_row >= PLAIN_EVERY:
            return counts
        if rows > costs.most:
            self._off = _COSTLY
            return counts
        if computing and (not self._pass_costs.known or self._waited >= self._patience):
            # A few for one of them, by turns, until it had some: they pay or not, one has to see.
            self._trying = True
            counts[self._tries % len(candidates)] = TRIED
            return [min(count, each.most) for count, each in zip(counts, candidates, strict=True)]
        likely: list[tuple[float, int]] = []
        for index, (_, each, most) in enumerate(candidates):
            chance = each
            for _ in range(most):
                if chance < LEAST:
                    break
                likely.append((chance, index))
                chance *= each
        likely.sort(reverse=True)
        del likely[max(0, min(self._most, costs.most - rows)) :]
        plain = best = GAIN * rows / costs.of(rows)
        taken, expected, guessing = 0, float(rows), 0.0
        places, passes = counts[:], [0] * WIDEST  # drafts of each sequence so far, rows of each pass
        for number, (chance, index) in enumerate(likely, 1):
            expected += chance
            if computing:
                place = places[index]
                guessing += self._pass(passes[place] + 1) - self._pass(passes[place])
                places[index], passes[place] = place + 1, passes[place] + 1
            cost = (1 + DOUBT * number) * costs.of(rows + number) + guessing
            if (speed := expected / cost) > best:
                best, taken = speed, number
        if best == plain:
            self._off = _UNLIKELY if not likely or likely[0][0] < 0.5 else _COSTLY
        else:
            self._patience = PATIENCE
        for _, index in likely[:taken]:
            counts[index] += 1
        return counts

    def _pass(self, rows: int) -> float:
        """What a pass of the drafter costs with so many rows, in units of the costs of steps."""
        return self._pass_costs.pace * self._pass_costs.of(rows) if rows else 0.0

    def _chances_of(self, sequence: Sequence) -> Chances:
        chances = self._chances.get(sequence)
        if chances is None:
            free = self._computing is None
            chances = self._chances[sequence] = Chances(EXPECTED if free else (self._overall.of(0),) * GRADES)
        return chances
