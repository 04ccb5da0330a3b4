"""Matrices on the device: how they are held, placed, and read row by row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..stored import canonical, check_finite
from ..weights import Weight, dequantize

ROWS_AT_ONCE = 4096
"""Rows of a matrix that are on their way to the device at a time."""


class Matrix(NamedTuple):
    """A matrix [outputs, inputs] on the device."""

    values: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return int(self.values.nbytes)


def place(parts: tuple[Weight, ...], device: torch.device, dtype: torch.dtype | None = None) -> Matrix:
    """The parts one below the other. dtype: of the arithmetic."""
    matrix = torch.empty(
        sum(part.shape[0] for part in parts), parts[0].shape[1], dtype=dtype or torch.float32, device=device
    )
    row = 0
    for part in parts:
        weight = canonical(part)
        check_finite(weight)
        for start in range(0, part.shape[0], ROWS_AT_ONCE):
            values = torch.from_numpy(dequantize(weight, start, start + ROWS_AT_ONCE))
            matrix[row : row + len(values)] = values
            row += len(values)
    return Matrix(matrix)


def embedding(table: Matrix, tokens: Tensor) -> Tensor:
    """Rows of a matrix by number, int32 [rows] -> float32 [rows, inputs]."""
    return table.values.index_select(0, tokens).float()
