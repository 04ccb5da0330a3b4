"""Does a row have the same bits in any company on this device? Found by trying: compilers promise nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..cache_format import CacheShape
from ..step import Step
from .batch import Batch
from .cache import Cache
from .kernel import Draw, Function
from .matrix import place
from .trials import weight

ROW_COUNTS = (1, 3, 16, 17, 65)
"""Rows of a product, alone and in company."""

_LENGTH, _OTHERS = 1100, 9
_SHAPE = CacheShape.alike(layers=1, blocks=80, block_size=16, kv_heads=1, head_dim=64, format="float16")
_HEADS = 3


def rows_are_independent(use: Mapping[str, Function], device: torch.device) -> bool:
    """Whether the last row of products, and of attention, has the same bits in steps of other sizes."""
    with torch.inference_mode():
        return _products(use["linear"], Draw(device)) and _attention(use["attention"], Draw(device))


def _same(rows: list[Tensor]) -> bool:
    return all(torch.equal(row, rows[0]) for row in rows)


def _products(linear: Function, draw: Draw) -> bool:
    """Of plain weights, whose sums are a matter of the hardware; those of packed ones are of integers."""
    outputs, inputs = 70, 1090
    rows = draw.normal(ROW_COUNTS[-1], inputs)
    for format in ("bf16", "f16"):
        matrix = place((weight(format, (outputs, inputs), draw),), draw.device)
        if not _same([linear(rows[-count:], matrix)[-1] for count in ROW_COUNTS]):
            return False
    return True


def _attention(attend: Function, draw: Draw) -> bool:
    """The last of 1,100 keys is asked for alone, at the end of a prompt, and beside other sequences."""
    cache = Cache(_SHAPE, draw.device)
    places = _SHAPE.blocks * _SHAPE.block_size
    lines = cache.lines(torch.arange(places, device=draw.device), 1)
    cache.write(0, draw.normal(places, 64), draw.normal(places, 64), lines)
    queries = draw.normal(_OTHERS + 70, _HEADS * 64)
    found = []
    for count, others in ((1, 0), (3, _OTHERS), (70, 1)):
        step = Step.of(
            positions=[*range(_LENGTH - count, _LENGTH), *[90] * others],
            sequences=[0] * count + list(range(1, others + 1)),
            block_tables=np.tile(np.arange(_SHAPE.blocks - 1, dtype=np.int32), (others + 1, 1)),
        )
        rows = torch.cat([queries[-count:], queries[:others]])
        found.append(attend(rows, cache, 0, Batch.of(step, draw.device), 0.125)[count - 1])
    return _same(found)
