"""Sums in an order that follows from the number of values alone; torch's own depends on shape and threads."""

from __future__ import annotations

from torch import Tensor


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
