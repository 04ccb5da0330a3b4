"""Where drafts come from."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import NamedTuple, Protocol

from ..sequence import Sequence


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
