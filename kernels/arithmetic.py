"""Arithmetic of which every bit is written down: single operations, each rounded once, in this order.

No library exponential, cosine or sine and no fused multiply-add takes part here. So numpy, torch and C++
(-ffp-contract=off) give the same bits on every machine and at every array size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .interface import Gate

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", NDArray[np.float32], "Tensor")

Exp = Callable[[Any], Any]
"""`exp32`, for arrays or for tensors."""

# exp(x) = 2^n exp(r), n = round(x / ln 2), r = x - n ln 2 (W. J. Cody, W. Waite, "Software Manual for the
# Elementary Functions", 1980). Each constant is exact in float32.
EXP_LOW = -88.0  # n = -127 here; its exponent field is 0, so the result is +0
EXP_HIGH = 88.0  # n = 127 here, the largest exponent
LOG2_E = float.fromhex("0x1.715476p+0")
LN2_HIGH = 355 / 512  # nine bits, so n * LN2_HIGH is exact
LN2_LOW = float.fromhex("-0x1.bd0106p-13")
# At 1.5 * 2^23 float32 steps by 1: adding this rounds x / ln 2 to n and leaves n + 127 in the lowest bits.
EXP_SHIFT = 1.5 * 2**23 + 127
# exp(r) for |r| <= ln 2 / 2, highest power first: a minimax fit, relative error 3e-9 before rounding.
EXP_POLYNOMIAL = (
    float.fromhex("0x1.6a23d0p-10"),
    float.fromhex("0x1.123a20p-7"),
    float.fromhex("0x1.5558f2p-5"),
    float.fromhex("0x1.555492p-3"),
    float.fromhex("0x1.fffffcp-2"),
    1.0,
    1.0,
)

# tanh(x) = x + x^3 times this in x^2, for |x| <= 0.625 (Cephes, tanhf.c); highest power first.
TANH_POLYNOMIAL = tuple(
    map(
        float.fromhex,
        ("-0x1.75e1d4p-8", "0x1.52269cp-6", "-0x1.b83c5ap-5", "0x1.110726p-3", "-0x1.555532p-2"),
    )
)
# 2 sqrt(2 / pi), and 0.044715 times that, rounded to float32.
GELU_TANH = (float.fromhex("0x1.988454p+0"), float.fromhex("0x1.2444f2p-4"))
# The standard normal distribution below -|x| is exp(-x^2 / 2) times this in t = 1 / (1 + 11/32 |x|), highest
# power first and none for 1: a minimax fit, relative error 2e-8 before rounding.
NORMAL_TAIL = tuple(
    map(
        float.fromhex,
        (
            *("-0x1.cb8df4p-6", "0x1.28dbf8p-3", "-0x1.186e04p-2", "0x1.8bb624p-3", "-0x1.4e2086p-5"),
            *("0x1.cfd76cp-4", "0x1.dd9aa8p-4", "0x1.19b90ep-3", "0x1.18d1b4p-3"),
        ),
    )
)
CLAMP_LIMIT, CLAMP_SLOPE = 7.0, float.fromhex("0x1.b3b646p+0")
"""Of the clamped gate: gpt-oss's swiglu_limit, and 1.702 rounded to float32."""

# x = n pi / 2 + r, the same way: n times each of the first two parts is exact for n below 2^20.
TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
HALF_PI = tuple(map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69")))
# Taylor series in r^2 for |r| <= pi / 4, highest power first: the next terms are below 2^-58.
COSINE_SERIES = tuple((-1) ** k / math.factorial(2 * k) for k in range(8, -1, -1))
SINE_SERIES = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1))


def exp32(x: Array, int32: Any = np.int32) -> Array:
    """e^x of float32 values within 1.2 units in the last place: of an array, or of a tensor with torch.int32.

    x above 88 counts as 88; below -87.7, -inf too, the result is exactly 0; NaN stays NaN.
    """
    r: Any = x.clip(EXP_LOW, EXP_HIGH)
    shifted = r * LOG2_E
    shifted += EXP_SHIFT
    n = shifted - EXP_SHIFT
    r -= n * LN2_HIGH
    n *= LN2_LOW
    r -= n
    result: Array = r * EXP_POLYNOMIAL[0]
    for coefficient in EXP_POLYNOMIAL[1:-1]:
        result += coefficient
        result *= r
    result += EXP_POLYNOMIAL[-1]
    result *= (shifted.view(int32) << 23).view(x.dtype)
    return result


def tanh32(x: Array, exp: Exp) -> Array:
    """Hyperbolic tangent of float32 values within 2 units in the last place; NaN stays NaN."""
    square: Any = x * x
    y = square * TANH_POLYNOMIAL[0]
    for coefficient in TANH_POLYNOMIAL[1:]:
        y += coefficient
        y *= square
    y *= x
    y += x
    magnitude: Any = abs(x)
    far = 1.0 - 2.0 / (exp(magnitude + magnitude) + 1.0)
    above, below = x > 0.625, x < -0.625
    y[above] = far[above]
    y[below] = -far[below]
    return y  # type: ignore[no-any-return]


def silu(x: Array, exp: Exp) -> Array:
    """The quotient x / (1 + exp(-x))."""
    denominator: Any = exp(-x) + 1.0
    return x / denominator  # type: ignore[no-any-return]


def gelu_tanh(x: Array, exp: Exp) -> Array:
    """That is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 (arXiv 1606.08415)."""
    one, cubed = GELU_TANH
    u: Any = (x * x * cubed + one) * x
    return x / (exp(-u) + 1.0)  # type: ignore[no-any-return]


def gelu(x: Array, exp: Exp) -> Array:
    """The product of x and the standard normal distribution up to x (arXiv 1606.08415)."""
    t: Any = 1.0 / (abs(x) * 0.34375 + 1.0)
    y = t * NORMAL_TAIL[0]
    for coefficient in NORMAL_TAIL[1:]:
        y += coefficient
        y *= t
    y *= exp(x * x * -0.5)
    above: Any = x > 0
    y[above] = (1.0 - y)[above]
    return x * y  # type: ignore[no-any-return]


def gated(kind: Gate, gate: Array, up: Array, exp: Exp) -> Array:
    """A gate and what it lets through.

    silu, gelu_tanh, gelu: that function of the gate, times up. clamped (gpt-oss): both within 7 (the gate
    only from above), gate / (1 + exp(-1.702 gate)) * (up + 1).
    """
    if kind != "clamped":
        function = {"silu": silu, "gelu_tanh": gelu_tanh, "gelu": gelu}[kind]
        return function(gate, exp) * up
    g: Any = gate.clip(max=CLAMP_LIMIT)
    return (up.clip(-CLAMP_LIMIT, CLAMP_LIMIT) + 1.0) * (g / (exp(-(g * CLAMP_SLOPE)) + 1.0))  # type: ignore[no-any-return]


def cosine_sine(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosine and sine of angles in radians, float64 like the angles, within 2^-52 for |x| < 2^20.

    The last bits of libm's own are a matter of the libm.
    """
    n = np.rint(x * TWO_OVER_PI)
    r = x
    for part in HALF_PI:
        r = r - n * part
    square = r * r
    cosine, sine = (np.full_like(r, series[0]) for series in (COSINE_SERIES, SINE_SERIES))
    for of_cosine, of_sine in zip(COSINE_SERIES[1:], SINE_SERIES[1:], strict=True):
        cosine *= square
        cosine += of_cosine
        sine *= square
        sine += of_sine
    sine *= r
    quarter = n - 4 * np.floor(n / 4)  # 0 to 3; as float64, which has room for every n
    odd = (quarter == 1) | (quarter == 3)
    cosine, sine = np.where(odd, sine, cosine), np.where(odd, cosine, sine)
    cosine = np.where((quarter == 1) | (quarter == 2), -cosine, cosine)
    sine = np.where(quarter >= 2, -sine, sine)
    return cosine, sine
