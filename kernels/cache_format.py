"""How keys and values are kept: the formats, and the shape of a paged cache of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """How keys and values are held. name: that of torch's type, too. dtype: numpy's, which has bfloat16 as 16
    bits. scale_bytes: of the float32 factor that a token's keys of a head share, and its values; 0 if there
    is none.
    """

    name: str
    dtype: type[np.generic]
    scale_bytes: int = 0

    @property
    def value_bytes(self) -> int:
        """Bytes of a value."""
        return np.dtype(self.dtype).itemsize


CACHE_FORMATS = {
    format.name: format
    for format in (
        CacheFormat("float32", np.float32),
        CacheFormat("float16", np.float16),
        CacheFormat("bfloat16", np.uint16),
        CacheFormat("int8", np.int8, scale_bytes=4),
    )
}
"""Every format of keys and values, by name. The table of cpp/cache_format.hpp is the same."""


class CachedLayer(NamedTuple):
    """Heads of the keys, and as many of the values, that a layer keeps of a token, and columns of each."""

    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The paged KV cache: of each layer [blocks][block_size tokens][kv_heads][head_dim], keys and values,
    in a format of `CACHE_FORMATS`.
    """

    layers: tuple[CachedLayer, ...]
    blocks: int
    block_size: int
    format: str

    @classmethod
    def alike(
        cls, layers: int, blocks: int, block_size: int, kv_heads: int, head_dim: int, format: str
    ) -> CacheShape:
        """So many layers with the same heads."""
        return cls((CachedLayer(kv_heads, head_dim),) * layers, blocks, block_size, format)

    @property
    def layer_bytes(self) -> tuple[int, ...]:
        """Bytes one token takes in each layer, keys and values together."""
        format = CACHE_FORMATS[self.format]
        of_head = [layer.head_dim * format.value_bytes + format.scale_bytes for layer in self.layers]
        return tuple(2 * own.kv_heads * size for own, size in zip(self.layers, of_head, strict=True))

    @property
    def bytes_per_token(self) -> int:
        """Bytes one token takes in all layers."""
        return sum(self.layer_bytes)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole cache."""
        return self.bytes_per_token * self.block_size * self.blocks
