"""Matrix products whose rows do not depend on each other, because every product has one fixed shape.

A BLAS picks its kernel by the shape, and another kernel sums in another order. So rows are cut into tiles
(the last one is padded with zeros) and each tile is multiplied alone; only the number of tiles varies.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

Product = Callable[[Tensor, Tensor], Tensor]
"""Of rows [rows, inputs] and a weight [outputs, inputs] -> float32 [rows, outputs]."""

TILE = 16
"""Rows of a tile of activations."""


IN_RANGE = 256.0
"""The largest value of a row that goes into float16 as it is: its products have room to add up to 65,504."""


def linear(x: Tensor, weight: Tensor, multiply: Product | None = None) -> Tensor:
    """Float32 [rows, outputs]: x [rows, inputs] @ weight [outputs, inputs].T in the weight's arithmetic.

    In float16, rows with values beyond what it can hold are divided by a power of two, and multiplied again.
    multiply: computes the product itself; None: in tiles.
    """
    multiply = multiply or _in_tiles
    if weight.dtype is torch.float16:
        peaks = x.abs().amax(dim=1, keepdim=True)
        factors = torch.where(
            peaks > IN_RANGE, (peaks / IN_RANGE).log2().ceil().exp2(), torch.ones_like(peaks)
        )
        return multiply(x / factors, weight) * factors
    return multiply(x, weight)


def _in_tiles(x: Tensor, weight: Tensor) -> Tensor:
    if len(weight) == 1:  # a matrix and a vector have another kernel, which a lone tile would get
        return _in_tiles(x, weight.expand(2, -1))[:, :1]
    rows, inputs = x.shape
    tiles = -(-rows // TILE)
    stack = pad(x.to(weight.dtype), (0, 0, 0, tiles * TILE - rows)).view(tiles, TILE, inputs)
    product = stack.new_empty(tiles, TILE, len(weight))
    if weight.dtype is torch.float32 or weight.device.type != "cpu":
        torch.bmm(stack, weight.T.expand(tiles, -1, -1), out=product)
    else:  # in the short formats a CPU's bmm copies the weight for each tile
        for tile, out in zip(stack, product, strict=True):
            torch.mm(tile, weight.T, out=out)
    return product.flatten(0, 1)[:rows].float()


def products(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Each tile alone: a [n, tiles, m, k] @ b [n, k, columns] -> [n, tiles, m, columns].

    The longer of the axes n and tiles becomes the batch of a call, the shorter one is looped over.
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
