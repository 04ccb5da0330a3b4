"""Does torch keep the numerics contract on this machine? Found by trying: a BLAS promises nothing."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..interface import CacheShape
from .attention import attend
from .cache import PagedCache
from .linear import linear
from .plan import Rows, plan

ROW_COUNTS = (1, 5, 16, 33)
_SHAPE = CacheShape(layers=1, blocks=16, block_size=32, kv_heads=3, head_dim=64, dtype="float32")


def rows_are_independent(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a row has the same bits alone and as the last of 5, 16 and 33, in a linear and in attention."""
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(draw.standard_normal(shape, np.float32)).to(device)

    with torch.inference_mode():
        rows = normal(max(ROW_COUNTS), 576)
        weight = normal(960, 576).to(dtype)
        cache = PagedCache(_SHAPE, device)
        positions = _SHAPE.blocks * _SHAPE.block_size
        lines = cache.lines(torch.arange(positions, device=device))
        cache.write(0, normal(positions, 192), normal(positions, 192), lines)
        mixed = [_attend_last(cache, rows[-count:]) for count in ROW_COUNTS]
        products = [linear(rows[-count:], weight)[-1] for count in ROW_COUNTS]
    return all(torch.equal(row, found[0]) for found in (products, mixed) for row in found)


def _attend_last(cache: PagedCache, queries: Tensor) -> Tensor:
    """The last query at position 300 behind the others, in a step with as many other, longer sequences."""
    count, table = len(queries), np.arange(_SHAPE.blocks, dtype=np.int32)
    positions = np.concatenate([np.full(count - 1, 500), np.arange(301 - count, 301)]).astype(np.int32)
    sequences = np.concatenate([np.arange(count - 1), np.full(count, count - 1)]).astype(np.int32)
    where = Rows(positions, sequences, np.tile(table, (count, 1)))
    q = torch.cat([queries[1:], queries])
    works = plan(where, cache, 9, None, q.device)
    return attend(cache, 0, q, works, 0.125)[-1]
