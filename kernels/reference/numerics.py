"""Exponentials and sums of tensors of which every bit is written down.

torch's own depend on the vector width, the shape and the number of threads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..arithmetic import exp32

PIECE = 1 << 16
"""Values whose exponentials are taken at a time: they and four temporaries stay in a core's cache."""


def exp_(x: Tensor) -> Tensor:
    """`exp32` of a contiguous tensor, in place."""
    flat = x.view(-1)
    for start in range(0, len(flat), PIECE):
        piece = flat[start : start + PIECE]
        piece.copy_(exp32(piece, torch.int32))
    return x


def exp(x: Tensor) -> Tensor:
    """`exp32` of a tensor."""
    return exp_(x.clone(memory_format=torch.contiguous_format))


def tree_sum(x: Tensor) -> Tensor:
    """Sum over the last axis, [..., n] -> [..., 1]: the second half is added to the first until one is left.

    Of an odd number the middle value waits for the next round.
    """
    n = x.shape[-1]
    total = x.clone()
    while n > 1:
        half = (n + 1) // 2
        total.narrow(-1, 0, n - half).add_(total.narrow(-1, half, n - half))
        n = half
    return total.narrow(-1, 0, 1)
