"""How likely the next guess for a reply is to be right."""

from __future__ import annotations

from collections.abc import Sequence

from .drafter import GRADES, Proposal

EXPECTED = (0.3, 0.4, 0.6, 0.8)
"""For each grade, before a guess has been compared with what came."""

WEIGHT = 2.0
"""Guesses that the expectation counts for."""

MEMORY = 0.93
"""What a guess counts for once the next one has been compared: about the last 14 make up the average."""

assert len(EXPECTED) == GRADES


class Chances:
    """Averages over the guesses made for one reply, a grade each.

    A guess that costs nothing is compared with the token that came whether or not it was computed as a draft.
    So its average does not depend on what else is computed, and goes on while no drafts are.
    """

    __slots__ = ("_right", "_seen")

    def __init__(self, expected: Sequence[float] = EXPECTED) -> None:
        """expected: for each grade, before anything is known."""
        self._right = [WEIGHT * chance for chance in expected]
        self._seen = [WEIGHT] * GRADES

    def of(self, grade: int) -> float:
        """That a guess of this grade is right, given that those before it are."""
        return self._right[grade] / self._seen[grade]

    def compare(self, proposal: Proposal, tokens: list[int]) -> None:
        """Take in what came. Nothing is learned of guesses behind a wrong one."""
        grade = proposal.grade
        right, seen = self._right[grade], self._seen[grade]
        for guess, token in zip(proposal.tokens, tokens, strict=False):
            seen = MEMORY * seen + 1
            right = MEMORY * right + (guess == token)
            if guess != token:
                break
        self._right[grade], self._seen[grade] = right, seen
