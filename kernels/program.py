"""A program as whoever captured it sees it: how large a step may be, how it is launched, what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Protocol

from .arrays import Float32, Int32
from .step import Counts, Step


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest step a program must take: rows, sample rows, sequences, and blocks of one sequence."""

    rows: int
    samples: int
    sequences: int
    blocks_per_sequence: int

    def check(self, counts: Counts) -> None:
        """ValueError: a step of these counts exceeds them."""
        names = ("rows", "sample rows", "sequences", "blocks of a sequence")
        for name, size, limit in zip(names, counts, astuple(self), strict=False):
            if size > limit:
                raise ValueError(
                    f"the step has {size} {name}, more than the {limit} the program was captured for"
                )


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What came of a step that was computed.

    tokens: int32 [samples], -1 where the logits hold NaN or every token is forbidden; the caller's own.
    logits: float32 [samples, vocabulary] before penalties and mask, the program's own: they hold until its
    next launch. None unless asked for. expert_bytes: of the weights of the experts that
    rows of the step chose, in all layers; each was read once.
    """

    tokens: Int32
    logits: Float32 | None
    expert_bytes: int = 0

    @property
    def computed(self) -> bool:
        """See `Pending`."""
        return True

    def result(self) -> StepOutput:
        """Itself: where a launch computes at once, this is what is pending."""
        return self


class DeviceFault(RuntimeError):  # noqa: N818
    """A device failed, so this process can compute nothing there any more. Says what happened, and what comes
    of it.
    """


WriteMask = Callable[[], None]
"""Writes `Step.mask`, which holds anything before."""


class Pending(Protocol):
    """A step that was launched."""

    @property
    def computed(self) -> bool:
        """Whether it was computed at once. Else whoever launched it has something to do meanwhile."""

    def result(self) -> StepOutput:
        """Wait until it is computed. The heavy part runs without the GIL.

        MemoryError: there is none for what the step needs; the next one may fare better.
        """


class Program(Protocol):
    """A captured forward: what ranks of a parallel model and captured graphs of a GPU stand behind.

    One step is under way at a time: between a launch and the end of its `result` there is no other launch of
    the program, and none of `Backend.copy_blocks`. Meanwhile the step's buffer stays as it is and belongs to
    the program; another one may be written, so that the next step is ready when this one is done. Only
    plain arrays go in and come out; what an output holds, and until when, stands at `StepOutput`.
    """

    def launch(self, step: Step, *, logits: bool = False, write_mask: WriteMask | None = None) -> Pending:
        """Begin a step; logits: whether they are wanted.

        write_mask: what is still to be done for the mask, if it is not written yet. It is called once, here,
        as late as can be: where a device computes beside this thread, when everything before the sampling has
        been begun. What it raises is raised here; then there is nothing to wait for.

        ValueError: the step exceeds the limits or points outside tables and cache; nothing was computed. A
        program that computes before this returns raises here what `result` would.
        """
