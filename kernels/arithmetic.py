"""Arithmetic of which every bit is written down: single operations, each rounded once, in this order.

No library exponential, cosine or sine and no fused multiply-add takes part here. So numpy, torch and C++
(-ffp-contract=off) give the same bits on every machine and at every array size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", NDArray[np.float32], "Tensor")

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
