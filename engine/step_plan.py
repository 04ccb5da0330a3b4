"""What one step computes: runs of tokens of some sequences, and which of their rows are sampled."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from kernels.arrays import Float32

from .sampler import SamplerState
from .sequence import Sequence

_Rows = TypeVar("_Rows", list[int], Float32)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of tokens of one sequence in a step: positions start to start + count - 1.

    Each token is a row of the step; drafts are behind the sequence's last token. samples: how many of the
    last rows need logits: from the sequence's last token on, or all if they are to be scored.
    """

    sequence: Sequence
    start: int
    count: int
    samples: int

    @property
    def end(self) -> int:
        """The position after its last."""
        return self.start + self.count

    @property
    def tokens(self) -> array[int]:
        """What its rows compute, before the step is committed; zeros where that is not known yet."""
        known = self.sequence.tokens[self.start : self.end]
        guessed = self.count - len(known)
        if not guessed:
            return known
        if not self.sequence.drafts:  # planned before it is known
            return known + array("i", [0] * guessed)
        first = max(0, self.start - len(self.sequence.tokens))
        return known + self.sequence.drafts[first : first + guessed]

    @property
    def decoding(self) -> bool:
        """Whether all its rows are sampled: it goes on with a reply, by a token or more."""
        return self.count == self.samples and not self.sequence.score


class Sample(NamedTuple):
    """A row whose next token is wanted: its index in the step, and the position of the token to be drawn."""

    row: int
    sequence: Sequence
    position: int

    @property
    def sampler(self) -> SamplerState:
        """What this draw depends on: the row has seen the drafts before it."""
        sequence, ahead = self.sequence, self.position - len(self.sequence.tokens)
        return sequence.sampler.ahead(sequence.drafts[:ahead]) if ahead > 0 else sequence.sampler


@dataclass(slots=True)
class StepPlan:
    """What one step computes. copies: (source, target) blocks to copy first, in order.

    exhausted: sequences that ran alone and still could not get a block; they end with reason capacity.
    """

    runs: list[Run] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    exhausted: list[Sequence] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Rows of the step."""
        return sum(run.count for run in self.runs)

    def samples(self) -> list[Sample]:
        """The sample rows of the step, in order."""
        found: list[Sample] = []
        end = 0
        for run in self.runs:
            end += run.count
            after = run.end + 1
            found.extend(Sample(end - back, run.sequence, after - back) for back in range(run.samples, 0, -1))
        return found

    def by_run(self, values: _Rows) -> Iterator[_Rows]:
        """What there is for each sample row, cut into the shares of the runs."""
        end = 0
        for run in self.runs:
            end += run.samples
            yield values[end - run.samples : end]

    @property
    def prefill_tokens(self) -> int:
        """Rows of prompts, and of what is computed again."""
        return sum(run.count for run in self.runs if not run.decoding)
