"""Matrix products whose rows do not depend on each other: every product has one fixed shape.

A BLAS picks its kernel by the shape, and another kernel sums in another order. So rows are cut into tiles of TILE
rows, the last filled up with zeros, and each tile is multiplied alone; only the number of tiles varies.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

TILE = 16


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x [rows, inputs] @ weight [outputs, inputs].T -> float32 [rows, outputs], computed in the weight's dtype."""
    rows = x.shape[0]
    tiles = -(-rows // TILE)
    stack = pad(x.to(weight.dtype), (0, 0, 0, tiles * TILE - rows)).view(tiles, TILE, -1)
    if weight.dtype is torch.float32 or weight.device.type != "cpu":
        product = torch.bmm(stack, weight.T.expand(tiles, -1, -1))
    else:  # here a CPU's bmm would copy the weight for each tile
        product = torch.stack([tile @ weight.T for tile in stack])
    return product.flatten(0, 1)[:rows].float()


def products(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a [n, tiles, m, k] @ b [n, k, columns] -> [n, tiles, m, columns]: every tile alone, n of them share one b.

    The longer of the two axes becomes the batch of a call, the shorter one is looped over.
    """
    n, tiles, m, _ = a.shape
    if out is None:
        out = a.new_empty(n, tiles, m, b.shape[-1])
    if tiles == 1:
        torch.bmm(a[:, 0], b, out=out[:, 0])
    elif tiles < n:
        for tile in range(tiles):
            out[:, tile] = torch.bmm(a[:, tile], b)
    else:
        for i in range(n):
            torch.bmm(a[i], b[i].expand(tiles, -1, -1), out=out[i])
    return out
