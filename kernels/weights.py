"""Weights in canonical form: numpy views, often straight into a memory-mapped file, never copied by making
one.

A matrix is [rows, columns] = [outputs, inputs]. Groups of 32 columns share a scale; where 32 does not divide
the columns, the last group is filled up with codes that are worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

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


@dataclass(frozen=True, slots=True)
class Packed:
    """A quantized matrix.

    q4: codes uint8 [rows, groups, 16]; byte i of a group holds column i in its low and column i + 16 in its
    high nibble; value = code * scale + minimum. q8: codes int8 [rows, groups, 32]; value = code * scale, no
    minima.
    scales, minima: float16 [rows, groups].
    """

    format: Literal["q4", "q8"]
    shape: tuple[int, int]
    codes: NDArray[Any]
    scales: NDArray[np.float16]
    minima: NDArray[np.float16] | None = None

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
        """Bytes of codes, scales and minima."""
        minima = 0 if self.minima is None else self.minima.nbytes
        return int(self.codes.nbytes + self.scales.nbytes + minima)


Weight = Plain | Packed
