"""The functions of `kernels.arithmetic` for kernels: the same operations in the same order.

A kernel that calls them is launched with `**EXACT`: else a product and a sum become one operation that rounds
once. Triton's own quotient is an approximation, `div_rn` is not.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .. import arithmetic

EXACT = {"enable_fp_fusion": False}
"""Options of a launch: each operation is rounded on its own."""

_LOW = tl.constexpr(arithmetic.EXP_LOW)
_HIGH = tl.constexpr(arithmetic.EXP_HIGH)
_LOG2_E = tl.constexpr(arithmetic.LOG2_E)
_LN2_HIGH = tl.constexpr(arithmetic.LN2_HIGH)
_LN2_LOW = tl.constexpr(arithmetic.LN2_LOW)
_SHIFT = tl.constexpr(arithmetic.EXP_SHIFT)
_EXP = tuple(map(tl.constexpr, arithmetic.EXP_POLYNOMIAL))
_E0, _E1, _E2, _E3, _E4, _E5, _E6 = _EXP
_T0, _T1, _T2, _T3, _T4 = map(tl.constexpr, arithmetic.TANH_POLYNOMIAL)
_GELU_ONE, _GELU_CUBED = map(tl.constexpr, arithmetic.GELU_TANH)
_N0, _N1, _N2, _N3, _N4, _N5, _N6, _N7, _N8 = map(tl.constexpr, arithmetic.NORMAL_TAIL)
_LIMIT = tl.constexpr(arithmetic.CLAMP_LIMIT)
_SLOPE = tl.constexpr(arithmetic.CLAMP_SLOPE)


@triton.jit
def exp32(x):
    """`kernels.arithmetic.exp32` of float32 values."""
    r = tl.where(x < _LOW, _LOW, x)  # NaN stays
    r = tl.where(r > _HIGH, _HIGH, r)
    shifted = r * _LOG2_E
    shifted = shifted + _SHIFT
    n = shifted - _SHIFT
    r = r - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    y = r * _E0
    y = (y + _E1) * r
    y = (y + _E2) * r
    y = (y + _E3) * r
    y = (y + _E4) * r
    y = (y + _E5) * r
    y = y + _E6
    return y * (shifted.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)


@triton.jit
def tanh32(x):
    """`kernels.arithmetic.tanh32` of float32 values."""
    square = x * x
    y = square * _T0
    y = (y + _T1) * square
    y = (y + _T2) * square
    y = (y + _T3) * square
    y = (y + _T4) * square
    y = y * x
    y = y + x
    magnitude = tl.abs(x)
    far = 1.0 - tl.div_rn(2.0, exp32(magnitude + magnitude) + 1.0)
    y = tl.where(x > 0.625, far, y)
    return tl.where(x < -0.625, -far, y)


@triton.jit
def silu(x):
    """`kernels.arithmetic.silu`."""
    return tl.div_rn(x, exp32(-x) + 1.0)


@triton.jit
def gelu_tanh(x):
    """`kernels.arithmetic.gelu_tanh`."""
    u = (x * x * _GELU_CUBED + _GELU_ONE) * x
    return tl.div_rn(x, exp32(-u) + 1.0)


@triton.jit
def gelu(x):
    """`kernels.arithmetic.gelu`."""
    t = tl.div_rn(1.0, tl.abs(x) * 0.34375 + 1.0)
    y = t * _N0
    y = (y + _N1) * t
    y = (y + _N2) * t
    y = (y + _N3) * t
    y = (y + _N4) * t
    y = (y + _N5) * t
    y = (y + _N6) * t
    y = (y + _N7) * t
    y = (y + _N8) * t
    y = y * exp32(x * x * -0.5)
    y = tl.where(x > 0, 1.0 - y, y)
    return x * y


@triton.jit
def gated(gate, up, KIND: tl.constexpr):
    """`kernels.arithmetic.gated`."""
    if KIND == "silu":
        y = silu(gate) * up
    elif KIND == "gelu_tanh":
        y = gelu_tanh(gate) * up
    elif KIND == "gelu":
        y = gelu(gate) * up
    else:
        g = tl.where(gate > _LIMIT, _LIMIT, gate)
        u = tl.where(up > _LIMIT, _LIMIT, up)
        u = tl.where(u < -_LIMIT, -_LIMIT, u)
        y = (u + 1.0) * tl.div_rn(g, exp32(-(g * _SLOPE)) + 1.0)
    return y


@triton.jit
def rounded(x, DROP: tl.constexpr):
    """Float32 without its last DROP bits, to nearest even; NaN stays NaN."""
    bits = x.to(tl.int32, bitcast=True)
    bits += ((1 << (DROP - 1)) - 1) + ((bits >> DROP) & 1)
    short = (bits & -(1 << DROP)).to(tl.float32, bitcast=True)
    return tl.where(x == x, short, x)
