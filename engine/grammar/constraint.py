"""What one reply keeps to, as far as it has come."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from typing import TYPE_CHECKING

from .thinking import Marks, Part

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher


class Constraint:
    """The state of a grammar after the tokens of a reply; on the engine thread alone.

    A model may think first (`Marks`): that part is free. Tokens that leave no choice are known without asking
    the model: they are those that the mask would allow alone, so the reply is the same with masks only.
    """

    __slots__ = ("_ends", "_marks", "_tail", "executor", "failure", "matcher", "part", "words")

    def __init__(
        self,
        matcher: LLMatcher,
        executor: LLExecutor,
        words: int,
        ends: Collection[int],
        marks: Marks | None = None,
        part: Part = "answer",
    ) -> None:
        """matcher: its own, at the beginning of the answer. executor: works out masks, for all replies of a
        model. words: of a mask. ends: tokens that end the reply.
        """
        self.matcher = matcher
        self.executor = executor
        self.words = words
        self.part: Part = part
        self.failure = ""
        """Why no token can follow: the grammar has become too complex, or leads nowhere."""
        self._ends = ends
        self._marks = marks
        self._tail: tuple[int, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing may follow: the reply ends here, without an end token."""
        return self.part == "answer" and not self.failure and self.matcher.is_stopped()

    @property
    def masks(self) -> bool:
        """Whether some tokens may not come next."""
        return self.part != "thinking"

    @property
    def opening(self) -> int | None:
        """The token that begins a thinking part, if one may begin here."""
        return self._marks.opening if self.part == "start" and self._marks is not None else None

    def advance(self, tokens: Sequence[int]) -> None:
        """Take in what the reply goes on with."""
        for place, token in enumerate(tokens):
            if self.part == "start":
                self.part = "thinking" if token == self.opening else "answer"
            if self.part == "answer":
                answer = [token for token in tokens[place:] if token not in self._ends]
                if answer and not self.matcher.consume_tokens(answer):
                    self.fail(self.matcher.get_error())
                return
            self._tail, closed = self._after(self._tail, token)
            if closed:
                self.part = "answer"

    def forced(self, most: int) -> list[int]:
        """The tokens that follow without a choice, taken in; at most so many."""
        taken: list[int] = []
        while self.part == "answer" and not self.failure and len(taken) < most:
            tokens = self.matcher.compute_ff_tokens()[: most - len(taken)]
            if not tokens:
                break
            self.advance(tokens)
            taken += tokens
        return taken

    def permitted(self, drafts: Sequence[int]) -> int:
        """How many of these tokens may follow, so that one more may come after them."""
        if self.part == "start" or self.failure:
            return 0
        if self.part == "thinking":
            tail = self._tail
            for place, token in enumerate(drafts):
                tail, closed = self._after(tail, token)
                if closed:  # what comes behind it depends on the grammar
                    return place
            return len(drafts)
        open_ = next((place for place, token in enumerate(drafts) if token in self._ends), len(drafts))
        ahead = self.matcher.deep_copy()
        count = ahead.try_consume_tokens([*drafts[:open_]])
        return count - 1 if count and ahead.is_stopped() else count

    def ahead(self, drafts: Sequence[int]) -> Constraint:
        """The state after these tokens, should they come; where they may not, it has failed."""
        state = copy(self)
        state.matcher = self.matcher.deep_copy()
        state.advance(drafts)
        return state

    def fail(self, why: str) -> None:
        """Nothing can follow."""
        self.failure = why.strip().partition("\n")[0] or "no text leads on from here"

    def _after(self, tail: tuple[int, ...], token: int) -> tuple[tuple[int, ...], bool]:
        """The last tokens of a thinking part, and whether they end it."""
        assert self._marks is not None, "only a model with marks thinks"
        closing = self._marks.closing
        tail = (*tail, token)[-len(closing) :]
        return tail, tail == closing
