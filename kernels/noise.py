"""Random numbers without state: the noise of a token is a function of (seed, position, token) alone.

So a draw does not depend on what else is in the batch, on the order of the steps or on drafts. All of it is
basic operations on uint32 and float32, each rounded on its own (no fused multiply-add): any backend can give
the same bits. The token with the largest logit plus Gumbel noise is a draw from the softmax of the logits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .arrays import Float32, UInt32, UInt64

_LN2 = np.float32(0.6931472)
_SQRT_HALF_BITS = np.uint32(0x3F3504F3)
_ATANH = tuple(np.float32(c) for c in (2 / 9, 2 / 7, 2 / 5, 2 / 3, 2))
"""log((1 + s) / (1 - s)) = s (2 + s^2 (2/3 + s^2 (2/5 + ...))): the next term is below 2e-9 of the sum."""

_LARGEST_UNIFORM = np.float32(1 - 2**-24)


def splitmix64(x: UInt64) -> UInt64:
    """One output of the SplitMix64 generator (Steele, Lea and Flood 2014) with state x: a bijection."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def row_keys(seeds: UInt64, positions: NDArray[np.int64]) -> UInt32:
    """Keys [n, 2] of n draws: the low and the high half of splitmix64(splitmix64(seed) + position)."""
    mixed = splitmix64(splitmix64(seeds) + positions.astype(np.uint64))
    return np.stack([mixed & np.uint64(0xFFFFFFFF), mixed >> np.uint64(32)], axis=-1).astype(np.uint32)


@lru_cache(maxsize=4)
def token_words(vocabulary: int) -> UInt32:
    """The ids 0 to vocabulary - 1, each mixed to a word of its own (lowbias32, C. Wellons' hash prospector).

    A token has the same word in every draw, so they are computed once.
    """
    x = np.arange(vocabulary, dtype=np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    x.flags.writeable = False
    return x


def hash32(keys: UInt32, words: UInt32) -> UInt32:
    """Hash of tokens, given as words, under a draw's two keys: keys [..., 2]; words broadcast with [...]."""
    x = words ^ keys[..., 0]
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x ^= keys[..., 1]
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


def log32(x: Float32) -> Float32:
    """Natural logarithm of positive normal float32 numbers, relative error below 5e-7.

    x = m 2^e with m in [sqrt(1/2), sqrt(2)); log x = e log 2 + 2 atanh(s), s = (m - 1) / (m + 1).
    """
    bits = x.view(np.uint32) - _SQRT_HALF_BITS
    exponent = (bits.view(np.int32) >> np.int32(23)).astype(np.float32)
    f = ((bits & np.uint32(0x7FFFFF)) + _SQRT_HALF_BITS).view(np.float32) - np.float32(1)
    s = f / (f + np.float32(2))
    square = s * s
    series = square * _ATANH[0] + _ATANH[1]
    for coefficient in _ATANH[2:]:
        series = series * square + coefficient
    return exponent * _LN2 + series * s


def gumbel(hashes: UInt32) -> Float32:
    """Gumbel noise -log(-log1p(-u)) of u = (h + 1/2) 2^-32 in float32: -2.82 to 22.88, error below 3e-6.

    Rounding must not make u 1. log1p(-u) is log(w) + (1 - w - u) / w with w = 1 - u rounded; 1 - w is exact,
    so the smallest u, which make the largest noise, keep all their digits.
    """
    u = (hashes.astype(np.float32) + np.float32(0.5)) * np.float32(2**-32)
    u = np.minimum(u, _LARGEST_UNIFORM)
    w = np.float32(1) - u
    log1p = log32(w) + ((np.float32(1) - w) - u) / w
    return -log32(-log1p)
