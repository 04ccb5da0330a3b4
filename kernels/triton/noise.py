"""The random numbers of `kernels.noise` for kernels: the same operations in the same order.

A kernel that calls them is launched with `**EXACT` of `arithmetic.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LN2 = tl.constexpr(0.6931472)
_SQRT_HALF_BITS = tl.constexpr(0x3F3504F3)
_A0, _A1, _A2, _A3, _A4 = map(tl.constexpr, (2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0))
_LARGEST_UNIFORM = tl.constexpr(1 - 2**-24)
_STEP = tl.constexpr(2.0**-32)


@triton.jit
def token_hash(tokens, low, high):
    """`hash32` of int32 token ids under a draw's two keys, uint32."""
    x = tokens.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    x = (x ^ low) * 0x7FEB352D
    x = x ^ (x >> 15)
    x = (x ^ high) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def log32(x):
    """`kernels.noise.log32` of positive normal float32 values."""
    bits = x.to(tl.int32, bitcast=True) - _SQRT_HALF_BITS
    exponent = (bits >> 23).to(tl.float32)
    f = ((bits & 0x7FFFFF) + _SQRT_HALF_BITS).to(tl.float32, bitcast=True) - 1.0
    s = tl.div_rn(f, f + 2.0)
    square = s * s
    series = square * _A0 + _A1
    series = series * square + _A2
    series = series * square + _A3
    series = series * square + _A4
    return exponent * _LN2 + series * s


@triton.jit
def gumbel(hashes):
    """`kernels.noise.gumbel` of uint32 hashes."""
    u = (hashes.to(tl.float32) + 0.5) * _STEP
    u = tl.where(u > _LARGEST_UNIFORM, _LARGEST_UNIFORM, u)
    w = 1.0 - u
    log1p = log32(w) + tl.div_rn((1.0 - w) - u, w)
    return -log32(-log1p)
