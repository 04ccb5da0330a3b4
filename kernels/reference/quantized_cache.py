"""Keys and values as the native backend holds them, in numpy: numbers and, in formats with scales, those."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache_format import CACHE_FORMATS, CacheShape
from ..interface import Float32, Int32
from .quantized import Held, integers_of


class QuantizedCache:
    """The KV cache of the twin: [2, layers, slots, kv_heads, head_dim]."""

    def __init__(self, shape: CacheShape) -> None:
        """Zeroed."""
        form = CACHE_FORMATS[shape.format]
        heads = (2, shape.layers, shape.blocks * shape.block_size, shape.kv_heads)
        self.shape = shape
        self._numbers: NDArray[Any] = np.zeros((*heads, shape.head_dim), form.dtype)
        self._scales = np.zeros(heads, np.float32) if form.scale_bytes else None

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return self._numbers.nbytes + (0 if self._scales is None else self._scales.nbytes)

    def write(self, layer: int, k: Float32, v: Float32, slots: Int32) -> None:
        """Store k and v [rows, kv_heads * head_dim]: rounded, or as integers and their scales."""
        for side, values in enumerate((k, v)):
            heads = values.reshape(len(slots), *self._numbers.shape[3:])
            if self._scales is None:
                with np.errstate(over="ignore"):
                    self._numbers[side, layer, slots] = heads
            else:
                integers, scales = integers_of(heads, 127)
                self._numbers[side, layer, slots] = integers
                self._scales[side, layer, slots] = scales

    def read(self, side: int, layer: int, head: int, slots: Int32) -> Held:
        """Keys (0) or values (1) of a head at these slots."""
        numbers = self._numbers[side, layer, slots, head].astype(np.float32)
        if self._scales is None:
            return Held(numbers, np.ones(len(slots), np.float32))
        return Held(numbers, self._scales[side, layer, slots, head])

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks, all read before the first is written."""
        offsets = np.arange(self.shape.block_size)
        source, target = ((ids[:, None] * len(offsets) + offsets).ravel() for ids in (sources, targets))
        for part in (self._numbers, self._scales):
            if part is not None:
                part[:, :, target] = part[:, :, source]
