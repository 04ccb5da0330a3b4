"""Writes which tokens may come next into a step."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.arrays import UInt32
from kernels.program import WriteMask
from kernels.step import Step

from ..step_plan import Run
from .constraint import Constraint

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

log = logging.getLogger(__name__)

_ALL = np.uint32(0xFFFFFFFF)


def mask_words(runs: Sequence[Run]) -> int:
    """Words of a mask of this step, 0 if every token may follow everywhere."""
    found = [run.sequence.constraint for run in runs if run.samples]
    # Drafts may lead from where a model thinks to where a mask holds.
    masked = [each.words for each in found if each is not None]
    if not masked or not any(_restricts(run) for run in runs):
        return 0
    return max(masked)


def _restricts(run: Run) -> bool:
    constraint = run.sequence.constraint
    return constraint is not None and bool(run.samples) and (constraint.masks or bool(run.sequence.drafts))


def mask_writer(step: Step, runs: Sequence[Run]) -> WriteMask | None:
    """What writes the mask of a step of these runs; None: it has none.

    It is called in the middle of a step, which others are in that know of no grammar. So whatever goes wrong
    there ends the replies that keep to one, and no other.
    """
    if not step.counts.mask_words:
        return None

    def write() -> None:
        try:
            write_masks(step.mask, runs)
        except Exception as error:
            log.exception("a mask could not be made")
            _forbid(step.mask, runs, f"{type(error).__name__}: {error}")

    return write


def _forbid(mask: UInt32, runs: Sequence[Run], why: str) -> None:
    """Let nothing follow in replies that keep to something."""
    row = 0
    for run in runs:
        first, row = row, row + run.samples
        constraint = run.sequence.constraint
        mask[first:row] = _ALL if constraint is None else 0
        if constraint is not None:
            constraint.fail(why)


def write_masks(mask: UInt32, runs: Sequence[Run]) -> None:
    """Fill `Step.mask` of kernels/step.py, a row for each sample row of the runs.

    The library writes the rows itself, those of several sequences and of their drafts on its own threads,
    without the interpreter's lock. Behind a draft that may not follow nothing is allowed: no token is drawn
    there, and so none is taken.
    """
    row = 0
    plain: list[tuple[LLMatcher, int]] = []
    drafted: list[tuple[LLMatcher, int, list[int]]] = []
    masked: list[tuple[Constraint, UInt32]] = []
    executor: LLExecutor | None = None
    for run in runs:
        first, row = row, row + run.samples
        constraint = run.sequence.constraint
        if constraint is None or first == row:
            mask[first:row] = _ALL
            continue
        before, drafts = _drafts(run)
        if before:  # a draft model goes on from its own guesses
            constraint = constraint.ahead(before)
        open_ = first + 1 + (constraint.permitted(drafts) if drafts else 0)
        mask[open_:row] = 0
        if not constraint.masks:
            mask[first:open_] = _ALL
            continue
        masked.append((constraint, mask[first:open_]))
        executor = constraint.executor
        if open_ == first + 1:
            plain.append((constraint.matcher, first))
        else:
            drafted.append((constraint.matcher, first, drafts[: open_ - first - 1]))
    if executor is not None:
        address, width = mask.ctypes.data, mask.strides[0]
        if plain:
            executor.unsafe_compute_mask_ptr(plain, address, width, len(mask))
        if drafted:
            executor.unsafe_compute_mask_ptr_with_draft_token(drafted, address, width, len(mask))
    for constraint, rows in masked:
        if constraint.matcher.is_error():
            constraint.fail(constraint.matcher.get_error())
        if constraint.failure:
            rows[:] = 0  # then no token is drawn, and the request says why
        elif constraint.opening is not None:
            rows[0, constraint.opening // 32] |= np.uint32(1 << constraint.opening % 32)


def _drafts(run: Run) -> tuple[list[int], list[int]]:
    """The drafts that the first of a run's sample rows has seen, and those that are seen one by one."""
    sequence = run.sequence
    seen = max(0, run.end - run.samples + 1 - len(sequence.tokens))
    drafts = sequence.drafts[: seen + run.samples - 1].tolist()
    return drafts[:seen], drafts[seen:]
