"""A step in pieces, so that the stages of a pipeline compute at the same time (GPipe, arXiv 1811.06965)."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kernels.arrays import Int32
from kernels.program import StepOutput
from kernels.step import Counts, Step, size_of

ROWS = 64
"""Fewest rows of a piece. Each piece reads a stage's weights once more, so decode steps stay whole: it is
prompts that computing takes longer for than reading.
"""

ALIGNED = 16
"""Pieces begin at multiples of so many rows, the tile of matrix products."""

PIECES_A_STAGE = 4
"""With m pieces and s stages each stage waits (s - 1) / (m + s - 1) of the time."""

_OF_SAMPLES = (
    "temperature", "top_k", "top_p", "min_p", "repetition", "presence", "frequency", "seeds",
    "draw_positions", "sample_rows", "mask",
)  # fmt: skip
"""Arrays of a step with a line for each sample."""


class Piece(NamedTuple):
    """A run of a step's rows as a step. samples: which of the whole step's samples are in it."""

    step: Step
    samples: Int32


def pieces(step: Step, stages: int) -> list[Piece]:
    """The step as one or more pieces, in order of the rows."""
    rows = step.counts.rows
    count = min(PIECES_A_STAGE * stages, rows // ROWS) if stages > 1 else 1
    if count <= 1:
        return [Piece(step, np.arange(step.counts.samples, dtype=np.int32))]
    borders = [rows * i // count // ALIGNED * ALIGNED for i in range(count)] + [rows]
    return [_piece(step, start, stop) for start, stop in pairwise(borders)]


def joined(outputs: list[StepOutput], of: list[Piece], samples: int) -> StepOutput:
    """The outputs of all pieces as that of the whole step."""
    if len(of) == 1:
        return outputs[0]
    tokens, logits = np.empty(samples, np.int32), None
    for output, piece in zip(outputs, of, strict=True):
        tokens[piece.samples] = output.tokens
        if output.logits is not None:
            if logits is None:
                logits = np.empty((samples, output.logits.shape[1]), np.float32)
            logits[piece.samples] = output.logits
    return StepOutput(tokens, logits, sum(output.expert_bytes for output in outputs))


def _piece(step: Step, start: int, stop: int) -> Piece:
    rows, lines = slice(start, stop), step.sequences[start:stop]
    tables = slice(int(lines[0]), int(lines[-1]) + 1)
    chosen = np.flatnonzero((step.sample_rows >= start) & (step.sample_rows < stop)).astype(np.int32)
    seen = _runs(step.seen_offsets, chosen)
    biased = _runs(step.bias_offsets, chosen)
    counts = Counts(
        stop - start,
        len(chosen),
        tables.stop - tables.start,
        step.counts.table_width,
        len(seen),
        len(biased),
        step.counts.mask_words,
    )
    part = Step.within(np.zeros(size_of(counts), np.uint8), counts)
    for name in ("tokens", "positions", "slots"):
        getattr(part, name)[:] = getattr(step, name)[rows]
    part.sequences[:] = lines - tables.start
    part.block_tables[:] = step.block_tables[tables]
    for name in _OF_SAMPLES:
        getattr(part, name)[:] = getattr(step, name)[chosen]
    part.sample_rows[:] -= start
    for offsets, whole, ids, places, values in (
        (part.seen_offsets, step.seen_offsets, "seen_ids", seen, "seen_counts"),
        (part.bias_offsets, step.bias_offsets, "bias_ids", biased, "bias_values"),
    ):
        offsets[1:] = np.cumsum(np.diff(whole)[chosen])
        for name in (ids, values):
            getattr(part, name)[:] = getattr(step, name)[places]
    return Piece(part, chosen)


def _runs(offsets: Int32, chosen: Int32) -> Int32:
    """The places of what the chosen samples list, one sample after the other."""
    found = [np.arange(offsets[i], offsets[i + 1], dtype=np.int32) for i in chosen]
    return np.concatenate(found) if found else np.empty(0, np.int32)
