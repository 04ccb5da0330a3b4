"""Arithmetic of which every bit is written down: single float32 operations, each rounded once, in this order.

No library exponential and no fused multiply-add takes part here. So numpy, torch and C++
(-ffp-contract=off) give the same bits on every machine and at every array size.
"""

from __future__ import annotations

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
