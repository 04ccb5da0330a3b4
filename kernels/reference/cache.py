"""The paged KV cache. A page, one head of one block, is one run of memory, so gathering copies long runs."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arrays import Int32
from ..cache_format import CACHE_FORMATS, CacheFormat, CacheShape
from ..machine import total_memory


def _zeros(dims: tuple[int, ...], form: CacheFormat, device: torch.device) -> Tensor:
    dtype = getattr(torch, form.name)
    if device.type != "cpu":
        return torch.zeros(dims, dtype=dtype, device=device)
    # numpy gets zeroed pages that the system provides as they are touched; torch would write them all now.
    return torch.from_numpy(np.zeros(dims, form.dtype)).view(dtype)


class PagedCache:
    """Keys and values of each layer: [2, blocks, kv_heads, block_size, head_dim].

    In a format with scales a float32 scale for each [..., block_size, 1]: value = scale * integer.
    """

    def __init__(self, shape: CacheShape, device: torch.device) -> None:
        """MemoryError, with the bytes wanted: the cache does not fit."""
        self.shape = shape
        form = CACHE_FORMATS[shape.format]
        scaled = form.scale_bytes > 0
        lines = [(2, shape.blocks, layer.kv_heads, shape.block_size) for layer in shape.layers]
        try:
            if device.type == "cpu" and shape.nbytes > total_memory():
                raise MemoryError  # a system that overcommits would only fail once the pages are written
            self._values = [
                _zeros((*line, layer.head_dim), form, device)
                for line, layer in zip(lines, shape.layers, strict=True)
            ]
            scales = CACHE_FORMATS["float32"]
            self._scales = [_zeros((*line, 1), scales, device) for line in lines] if scaled else None
        except (MemoryError, torch.OutOfMemoryError):
            raise MemoryError(
                f"KV cache: {shape.blocks} blocks of {shape.block_size} tokens need {shape.nbytes} bytes, "
                f"more than device {device} has; lower kv_memory or kv_blocks"
            ) from None

    def pages(self, blocks: Int32, kv_heads: int) -> NDArray[np.int64]:
        """Numbers of the pages of blocks [..., n] in a layer with so many heads -> [..., kv_heads, n]."""
        heads = np.arange(kv_heads)
        return blocks.astype(np.int64)[..., None, :] * len(heads) + heads[:, None]

    def lines(self, slots: Tensor, kv_heads: int) -> Tensor:
        """Where the heads of tokens lie in a layer with so many: slots [rows] -> [rows * kv_heads]."""
        heads = torch.arange(kv_heads, device=slots.device)
        blocks, offsets = slots // self.shape.block_size, slots % self.shape.block_size
        pages = blocks[:, None] * len(heads) + heads
        return (pages * self.shape.block_size + offsets[:, None]).flatten()

    def write(self, layer: int, k: Tensor, v: Tensor, lines: Tensor) -> None:
        """Store k and v [rows, kv_heads * head_dim] of a layer at `lines`, rounded to nearest even."""
        head_dim = self.shape.layers[layer].head_dim
        for side, values in enumerate((k, v)):
            heads = values.reshape(-1, head_dim)
            if self._scales is not None:
                heads, scales = _integers(heads)
                self._scales[layer][side].view(-1, 1).index_copy_(0, lines, scales)
            target = self._values[layer][side].view(-1, head_dim)
            target.index_copy_(0, lines, heads.to(target.dtype))

    def read_keys(self, layer: int, pages: Tensor) -> Tensor:
        """The keys of pages of a layer, float32 [pages, block_size * head_dim]."""
        return self._read(0, layer, pages)

    def read_values(self, layer: int, pages: Tensor) -> Tensor:
        """The values of pages of a layer, float32 [pages, block_size * head_dim]."""
        return self._read(1, layer, pages)

    def _read(self, side: int, layer: int, pages: Tensor) -> Tensor:
        held = self._values[layer][side].flatten(0, 1).index_select(0, pages.flatten()).float()
        if self._scales is not None:
            held *= self._scales[layer][side].flatten(0, 1).index_select(0, pages.flatten())
        return held.flatten(1)

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks, all read before the first is written."""
        source, target = (
            torch.from_numpy(ids).to(self._values[0].device).long() for ids in (sources, targets)
        )
        for part in (*self._values, *(self._scales or ())):
            part.index_copy_(1, target, part.index_select(1, source))


def _integers(heads: Tensor) -> tuple[Tensor, Tensor]:
    """Integers up to 127 and a scale for each row [n, head_dim]; the scale of what isn't finite is NaN.

    As in `quantized.integers_of`.
    """
    peak = heads.abs().amax(-1, keepdim=True)
    finite, tiny = peak < math.inf, peak < 2.0**-100
    inverse = torch.where(finite & ~tiny, 127 / peak, 0.0)
    scales = torch.where(finite, torch.where(tiny, 0.0, peak / 127), math.nan)
    return torch.where(finite, heads * inverse, 0.0).round(), scales
