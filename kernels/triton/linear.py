"""Products with placed matrices."""

from __future__ import annotations

from torch import Tensor

from ..reference.linear import linear as product
from .matrix import Matrix


def linear(x: Tensor, matrix: Matrix, bias: Tensor | None = None, planes: int = 1) -> Tensor:
    """Float32 [rows, outputs]: x [rows, inputs] @ matrix.T, and the bias [outputs]."""
    result = product(x, matrix.values)
    return result if bias is None else result + bias
