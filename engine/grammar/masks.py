"""Writes which tokens may come next into a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.step import UInt32

from ..step_plan import Run
from .constraint import Constraint

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_ALL = np.uint32(0xFFFFFFFF)


def mask_words(runs: Sequence[Run]) -> int:
    """Words of a mask of this step, 0 if every token may follow everywhere."""
    constraints = [run.sequence.constraint for run in runs if run.samples]
    return max([each.words for each in constraints if each is not None and each.masks], default=0)


def write_masks(mask: UInt32, runs: Sequence[Run]) -> None:
    """Fill `Step.mask` of kernels/step.py, a row for each sample row of the runs.

    The library writes the rows itself, those of several sequences and of their drafts on its own threads,
    without the interpreter's lock.
    """
    row = 0
    plain: list[tuple[LLMatcher, int]] = []
    drafted: list[tuple[LLMatcher, int, list[int]]] = []
    masked: list[tuple[Constraint, UInt32]] = []
    executor: LLExecutor | None = None
    for run in runs:
        first, row = row, row + run.samples
        constraint = run.sequence.constraint
        if constraint is None or not constraint.masks or first == row:
            mask[first:row] = _ALL
            continue
        masked.append((constraint, mask[first:row]))
        executor = constraint.executor
        if row - first == 1:
            plain.append((constraint.matcher, first))
        else:
            drafted.append((constraint.matcher, first, run.sequence.drafts[: row - first - 1].tolist()))
    if executor is None:
        return
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
