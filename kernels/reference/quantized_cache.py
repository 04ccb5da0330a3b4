"""Keys and values as the native backend holds them, in numpy: numbers and, in formats with scales, those."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float32, Int32
from ..cache_format import CACHE_FORMATS, CacheShape
from .quantized import Held, integers_of


class QuantizedCache:
    """The KV cache of the twin, of each layer [2, slots, kv_heads, head_dim]."""

    def __init__(self, shape: CacheShape) -> None:
        """Zeroed."""
        form = CACHE_FORMATS[shape.format]
        slots = shape.blocks * shape.block_size
        self.shape = shape
        self._bf16 = shape.format == "bfloat16"
        self._numbers: list[NDArray[Any]] = [
            np.zeros((2, slots, *layer), form.dtype) for layer in shape.layers
        ]
        self._scales = (
            [np.zeros((2, slots, layer.kv_heads), np.float32) for layer in shape.layers]
            if form.scale_bytes
            else None
        )

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return sum(part.nbytes for part in (*self._numbers, *(self._scales or ())))

    def write(self, layer: int, k: Float32, v: Float32, slots: Int32) -> None:
        """Store k and v [rows, kv_heads * head_dim]: rounded, or as integers and their scales."""
        for side, values in enumerate((k, v)):
            heads = values.reshape(len(slots), *self.shape.layers[layer])
            if self._scales is None:
                with np.errstate(over="ignore"):
                    self._numbers[layer][side, slots] = _bf16(heads) if self._bf16 else heads
            else:
                integers, scales = integers_of(heads, 127)
                self._numbers[layer][side, slots] = integers
                self._scales[layer][side, slots] = scales

    def read(self, side: int, layer: int, head: int, slots: Int32) -> Held:
        """Keys (0) or values (1) of a head at these slots."""
        numbers = self._numbers[layer][side, slots, head]
        numbers = (
            (numbers.astype(np.uint32) << 16).view(np.float32) if self._bf16 else numbers.astype(np.float32)
        )
        if self._scales is None:
            return Held(numbers, np.ones(len(slots), np.float32))
        return Held(numbers, self._scales[layer][side, slots, head])

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks, all read before the first is written."""
        offsets = np.arange(self.shape.block_size)
        source, target = ((ids[:, None] * len(offsets) + offsets).ravel() for ids in (sources, targets))
        for part in (*self._numbers, *(self._scales or ())):
            part[:, target] = part[:, source]


def _bf16(values: Float32) -> NDArray[np.uint16]:
    """Float32 values as bfloat16, to nearest even; NaN as the one that torch makes of all."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
