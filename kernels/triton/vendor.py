"""Products with plain weights by the GPU vendor's library (cuBLAS), through torch.

It takes another kernel, and with that another order of sums, for other numbers of rows: so a row's bits
depend on its company. Products of integers with packed weights are the backend's own in any case: no library
has them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference.linear import linear as in_range
from .kernel import Kernel
from .linear import KERNEL as EXACT
from .matrix import Matrix


def linear(x: Tensor, matrix: Matrix, bias: Tensor | None = None, planes: int = 1) -> Tensor:
    """Float32 [rows, outputs]: x [rows, inputs] @ matrix.T, and the bias [outputs], in its arithmetic.

    planes: of packed weights.
    """
    if not all(block.plain for block in matrix.blocks):
        return EXACT.compute(x, matrix, bias, planes)  # type: ignore[no-any-return]
    parts = [in_range(x, block.values, _product) for block in matrix.blocks]
    result = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return result if bias is None else result + bias


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return (x.to(weight.dtype) @ weight.T).float()


KERNEL = EXACT._replace(compute=linear, tolerance=1e-2)


def with_vendor(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The same kernels, but for those that the vendor has."""
    return tuple(KERNEL if kernel.name == KERNEL.name else kernel for kernel in kernels)
