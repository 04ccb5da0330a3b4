"""The paged KV cache. A page, one head of one block, is one run of memory, so gathering copies long runs."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..interface import CACHE_FORMATS, CacheShape, Int32
from ..machine import total_memory


def _zeros(shape: CacheShape, device: torch.device) -> Tensor:
    dtype = CACHE_FORMATS[shape.format].dtype
    dims = (2, shape.layers, shape.blocks, shape.kv_heads, shape.block_size, shape.head_dim)
    if device.type != "cpu":
        return torch.zeros(dims, dtype=getattr(torch, dtype.__name__), device=device)
    if shape.nbytes > total_memory():
        raise MemoryError  # a system that overcommits would only fail once the pages are written
    # numpy gets zeroed pages that the system provides as they are touched; torch would write them all now.
    return torch.from_numpy(np.zeros(dims, dtype))


class PagedCache:
    """Keys and values of all layers: [2, layers, blocks, kv_heads, block_size, head_dim]."""

    def __init__(self, shape: CacheShape, device: torch.device) -> None:
        """MemoryError, with the bytes wanted: the cache does not fit."""
        self.shape = shape
        try:
            self._tensor = _zeros(shape, device)
        except (MemoryError, torch.OutOfMemoryError):
            raise MemoryError(
                f"KV cache: {shape.blocks} blocks of {shape.block_size} tokens need {shape.nbytes} bytes, "
                f"more than device {device} has; lower kv_memory or kv_blocks"
            ) from None

    def pages(self, blocks: Int32) -> NDArray[np.int64]:
        """Numbers of the pages of blocks [..., n] -> [..., kv_heads, n]."""
        heads = np.arange(self.shape.kv_heads)
        return blocks.astype(np.int64)[..., None, :] * len(heads) + heads[:, None]

    def lines(self, slots: Tensor) -> Tensor:
        """Where the heads of tokens lie in a layer, counted in heads: slots [rows] -> [rows * kv_heads]."""
        heads = torch.arange(self.shape.kv_heads, device=slots.device)
        blocks, offsets = slots // self.shape.block_size, slots % self.shape.block_size
        pages = blocks[:, None] * len(heads) + heads
        return (pages * self.shape.block_size + offsets[:, None]).flatten()

    def write(self, layer: int, k: Tensor, v: Tensor, lines: Tensor) -> None:
        """Store k and v [rows, kv_heads * head_dim] of a layer at `lines`, rounded to nearest even."""
        for side, values in zip(self._tensor[:, layer], (k, v), strict=True):
            target = side.view(-1, self.shape.head_dim)
            target.index_copy_(0, lines, values.reshape(-1, self.shape.head_dim).to(side.dtype))

    def read_keys(self, layer: int, pages: Tensor) -> Tensor:
        """The keys of pages of a layer, float32 [pages, block_size * head_dim]."""
        return self._read(self._tensor[0, layer], pages)

    def read_values(self, layer: int, pages: Tensor) -> Tensor:
        """The values of pages of a layer, float32 [pages, block_size * head_dim]."""
        return self._read(self._tensor[1, layer], pages)

    def _read(self, side: Tensor, pages: Tensor) -> Tensor:
        rows = side.view(-1, self.shape.block_size * self.shape.head_dim)
        return rows.index_select(0, pages.flatten()).float()

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks, all read before the first is written."""
        source, target = (torch.from_numpy(ids).to(self._tensor.device).long() for ids in (sources, targets))
        self._tensor.index_copy_(2, target, self._tensor.index_select(2, source))
