"""Where drafts come from."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import NamedTuple, Protocol, runtime_checkable

from ..sequence import Sequence
from ..step_plan import StepPlan


class Proposal(NamedTuple):
    """A guess at how a reply goes on. grade: how well founded it is, 0 to GRADES - 1; what a grade is worth
    is found out for each reply, see `Chances`.
    """

    tokens: Tokens[int]
    grade: int = 0


GRADES = 4
"""Kinds of guesses that are told apart."""


class Drafter(Protocol):
    """Guesses how replies go on. A wrong guess costs a row of a step and never changes a reply.

    name: for people.
    """

    name: str

    def propose(self, sequences: list[Sequence], most: int) -> list[Proposal]:
        """Guesses at the tokens after each sequence's last one, any number; what is over `most` is cut off.

        It depends on the sequence alone, not on the others or on time.
        """


class Pass(NamedTuple):
    """One pass of a drafter that computes: its rows, how long it took, the bytes it moved."""

    rows: int
    seconds: float
    traffic: int = 0


@runtime_checkable
class ComputingDrafter(Protocol):
    """A drafter whose guesses take time: a pass for the first ones of all sequences, one more for the second
    ones, and so on. So it is told how many are wanted, once there is room for them.

    memory_bytes: of its weights; bytes_per_token: of its keys and values, in each slot of the cache.
    """

    name: str
    memory_bytes: int
    bytes_per_token: int

    def limit(self, sequence: Sequence) -> int:
        """How many tokens it can guess at most for a sequence, whatever they are."""

    def guess(self, plan: StepPlan) -> list[Pass]:
        """Write the drafts of the plan's runs that have rows for some: so many, or fewer.

        They depend on the sequence alone, not on the others or on time. Blocks that the plan copies are
        copied here, too.
        """

    def close(self) -> None:
        """Free memory and threads."""
