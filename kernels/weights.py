"""Weights in canonical form: numpy views, often straight into a memory-mapped file, never copied by making
one.

A matrix is [rows, columns] = [outputs, inputs]. Groups of 32 columns share a scale; where 32 does not divide
the columns, the last group is filled up with codes that are worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

GROUP = 32
"""Columns that share one scale."""


def group_count(columns: int) -> int:
    """Number of groups that hold `columns` values."""
    return -(-columns // GROUP)


@dataclass(frozen=True, slots=True)
class Plain:
    """Unquantized values, [rows, columns] or [n]. `bf16` values are held as their 16 bits in uint16."""

    values: NDArray[Any]
    dtype: Literal["f32", "f16", "bf16"]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.values.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return int(self.values.nbytes)


class Kept(NamedTuple):
    """Rows of a packed matrix whose values are too small for float16 scales.

    rows: their numbers, ascending. values: float32 [n, columns].
    """

    rows: NDArray[np.int64]
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Packed:
    """A quantized matrix.

    q4: codes uint8 [rows, groups, 16]; byte i of a group holds column i in its low and column i + 16 in its
    high nibble; value = code * scale + minimum. q8: codes int8 [rows, groups, 32]; value = code * scale, no
    minima.
    scales, minima: float16 [rows, groups]. kept: rows that hold instead of what the codes say.
    """

    format: Literal["q4", "q8"]
    shape: tuple[int, int]
    codes: NDArray[Any]
    scales: NDArray[np.float16]
    minima: NDArray[np.float16] | None = None
    kept: Kept | None = None

    def __post_init__(self) -> None:
        rows, columns = self.shape
        width, dtype = (16, np.uint8) if self.format == "q4" else (32, np.int8)
        grid = (rows, group_count(columns))
        assert self.codes.shape == (*grid, width), (self.codes.shape, self.shape)
        assert self.codes.dtype == dtype, self.codes.dtype
        assert self.scales.shape == grid, self.scales.shape
        assert (self.minima is not None) == (self.format == "q4"), "q4 has minima, q8 has none"
        assert self.minima is None or self.minima.shape == grid, "one minimum a group"

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales, minima and rows that are kept."""
        minima = 0 if self.minima is None else self.minima.nbytes
        kept = 0 if self.kept is None else self.kept.values.nbytes
        return int(self.codes.nbytes + self.scales.nbytes + minima + kept)

    def part(self, start: int, stop: int) -> Packed:
        """Some of its rows, by their codes."""
        minima = None if self.minima is None else self.minima[start:stop]
        shape = (stop - start, self.shape[1])
        return Packed(self.format, shape, self.codes[start:stop], self.scales[start:stop], minima)


Weight = Plain | Packed


def blocks_of_rows(weight: Weight) -> list[Weight]:
    """The weight as blocks of rows, one below the other, that each have a single form."""
    if isinstance(weight, Plain) or weight.kept is None:
        return [weight]
    blocks: list[Weight] = []
    end, rows = 0, weight.kept.rows
    runs = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) > 1) + 1)
    for run in runs:
        start, stop = int(rows[run[0]]), int(rows[run[-1]]) + 1
        if start > end:
            blocks.append(weight.part(end, start))
        blocks.append(Plain(weight.kept.values[run[0] : run[-1] + 1], "f32"))
        end = stop
    if end < weight.shape[0]:
        blocks.append(weight.part(end, weight.shape[0]))
    return blocks
