"""Does torch keep the numerics contract on this machine? Found by trying: a BLAS promises nothing."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..cache_format import CacheShape
from ..step import Step
from .attention import attend
from .cache import PagedCache
from .linear import linear
from .work import work_of

ROW_COUNTS = (1, 5, 16)
_SHAPE = CacheShape.alike(layers=1, blocks=16, block_size=16, kv_heads=3, head_dim=64, format="float32")


def rows_are_independent(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a row has the same bits alone and as the last of 5 and of 16, in a linear and in attention."""
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(draw.standard_normal(shape, np.float32)).to(device)

    with torch.inference_mode():
        rows = normal(2 * ROW_COUNTS[-1], 576)
        weight = normal(960, 576).to(dtype)
        cache = PagedCache(_SHAPE, device)
        places = _SHAPE.blocks * _SHAPE.block_size
        lines = cache.lines(torch.arange(places, device=device), 3)
        cache.write(0, normal(places, 192), normal(places, 192), lines)
        products = [linear(rows[-count:], weight)[-1] for count in (*ROW_COUNTS, len(rows))]
        mixed = [_attend_last(cache, rows[-count:]) for count in ROW_COUNTS]
    return all(torch.equal(row, found[0]) for found in (products, mixed) for row in found)


def _attend_last(cache: PagedCache, queries: Tensor) -> Tensor:
    """The last query, at position 140 behind the others, beside up to three longer sequences."""
    count, others = len(queries), min(len(queries) - 1, 3)
    step = Step.of(
        positions=np.array([*range(141 - count, 141), *[200] * others], np.int32),
        sequences=np.array([0] * count + list(range(1, others + 1)), np.int32),
        block_tables=np.tile(np.arange(_SHAPE.blocks, dtype=np.int32), (others + 1, 1)),
    )
    works = work_of(step, cache, _SHAPE.layers[0], 9, None, queries.device)
    return attend(cache, 0, torch.cat([queries, queries[:others]]), works, 0.125)[count - 1]
