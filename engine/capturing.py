"""The KV cache and the captured program of a model, as large as the device really has room for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernels.cache_format import CacheShape
from kernels.interface import Backend
from kernels.program import Limits, Program
from kernels.step import Step

SHRINK = 0.75
"""What is left of a cache that did not fit beside the program."""

LEAST_TOKENS = 512
"""Tokens that a cache holds at least: with fewer there is no conversation."""


class Captured(NamedTuple):
    """notes: a sentence where the cache became smaller than was planned."""

    shape: CacheShape
    program: Program
    notes: tuple[str, ...]


def capture_within(
    backend: Backend,
    shape: CacheShape,
    capture: Callable[[], Program],
    limits: Limits,
    positions: int,
    least: int,
    beside: Callable[[int], None] | None = None,
) -> Captured:
    """Allocate the cache and capture the program; where there is no room the cache gets smaller, down to
    `least` blocks. beside: makes the cache of a draft model, which has as many.

    On a device with memory of its own, where nothing gives way to a step in the middle of a reply, the
    largest step is computed once, so that whatever it needs is there or known to be missing. positions: that
    there are rotation tables for. MemoryError: not even the least fits.
    """
    planned, program = shape, None
    allocated = False
    while True:
        try:
            backend.allocate_cache(shape)
            allocated = True
            if beside is not None:
                beside(shape.blocks)
            if program is None:  # it takes whatever cache there is
                program = capture()
            if not backend.shares_arrays:
                program.launch(largest_step(limits, shape, positions)).result()
            break
        except MemoryError:
            fewer = int(shape.blocks * SHRINK)
            if fewer < least or (allocated and backend.shares_arrays):
                raise
        shape = replace(shape, blocks=fewer)
    if shape.blocks == planned.blocks:
        return Captured(shape, program, ())
    note = (
        f"the KV cache holds {shape.blocks * shape.block_size} tokens instead of "
        f"{planned.blocks * planned.block_size}: {backend.device} has no room for more beside a step"
    )
    return Captured(shape, program, (note,))


def largest_step(limits: Limits, shape: CacheShape, positions: int) -> Step:
    """As many rows and samples as a program takes, of one sequence that is as long as the cache holds; with
    every rule of sampling. What it writes into the cache nobody reads.
    """
    end = min(positions, shape.blocks * shape.block_size, limits.blocks_per_sequence * shape.block_size)
    rows = min(limits.rows, end)
    samples = min(limits.samples, rows)
    place = np.arange(end - rows, end, dtype=np.int32)
    sizes = {"temperature": 1, "top_k": 50, "top_p": 0.9, "min_p": 0.01, "repetition": 1.1, "presence": 0.1}
    return Step.of(
        tokens=np.zeros(rows, np.int32),
        positions=place,
        slots=place,
        sequences=np.zeros(rows, np.int32),
        block_tables=np.arange(-(-end // shape.block_size), dtype=np.int32)[None],
        sample_rows=np.arange(rows - samples, rows, dtype=np.int32),
        seen_offsets=np.arange(samples + 1, dtype=np.int32),
        seen_ids=np.zeros(samples, np.int32),
        seen_counts=np.ones(samples, np.int32),
        **{name: np.full(samples, value) for name, value in sizes.items()},
    )
