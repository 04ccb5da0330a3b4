"""One sequence of tokens as the scheduler sees it."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from collections.abc import Sequence as Tokens
from itertools import accumulate

from .blocks import BlockTable
from .grammar.constraint import Constraint
from .sampler import SamplerState


class Places:
    """Counts of drafts by their place in a step, from how many each step had; the first place first."""

    __slots__ = ("_steps", "total")

    def __init__(self) -> None:
        self._steps: list[int] = []  # by the number of drafts less one
        self.total = 0

    def add(self, count: int) -> None:
        """A step with so many."""
        if count > 0:
            if count > len(self._steps):
                self._steps += [0] * (count - len(self._steps))
            self._steps[count - 1] += 1
            self.total += count

    def counts(self, places: int = 0) -> tuple[int, ...]:
        """Drafts at each place, at least so many places."""
        counts = tuple(accumulate(reversed(self._steps)))[::-1]
        return counts + (0,) * (places - len(counts))


class Sequence:
    """Prompt and reply of one request, and how much of them is in the KV cache.

    `computed` catches up with `tokens`; there is no other difference between prefill and decode. With
    `score`, the logits of every prompt token are wanted and nothing is sampled. ends: ids that end the reply.
    drafts: guesses at the tokens that come next, for one step; no part of `tokens` until they are accepted.
    While a step is planned they may be zeros, which stand for guesses that are made once it is.
    constraint: what the reply keeps to.
    """

    def __init__(
        self,
        id: int,
        prompt: Tokens[int],
        sampler: SamplerState,
        *,
        ends: Collection[int] = (),
        score: bool = False,
        constraint: Constraint | None = None,
    ) -> None:
        self.id = id
        self.tokens = array("i", prompt)
        self.drafts = array("i")
        self.ends = ends
        self.prompt_length = len(self.tokens)
        self.sampler = sampler
        self.constraint = constraint
        self.score = score
        self.table = BlockTable()
        self.computed = 0
        self.admitted = False  # whether it ever was; it may have been preempted since
        self.cached = 0  # prompt tokens found in the prefix cache when first admitted
        self.drafts_tried = Places()
        self.drafts_kept = Places()

    @property
    def drafted(self) -> int:
        """Drafts that were computed so far."""
        return self.drafts_tried.total

    @property
    def accepted(self) -> int:
        """How many of them the reply went on with."""
        return self.drafts_kept.total

    @property
    def remaining(self) -> int:
        """Tokens whose keys and values are not computed yet; drafts are no tokens."""
        return len(self.tokens) - self.computed

    @property
    def decoding(self) -> bool:
        """Whether all but its last token is computed, so that the next step goes on with the reply, by
        however many tokens. A prompt is not there yet, nor is what a preempted sequence computes again.
        """
        return self.remaining == 1 and not self.score

    @property
    def output_length(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - self.prompt_length

    def append(self, token: int) -> None:
        """Add a sampled token."""
        self.tokens.append(token)
        self.sampler.observe(token)
