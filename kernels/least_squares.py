"""A better scale and minimum for a group of float values than those from its least to its largest value.

For given codes, the best line through the values is linear regression; for a given line, the best codes are
the nearest. Several first lines are tried, each with one step of this alternation, and the line
with the least sum of squares is kept (Lloyd 1982, "Least squares quantization in PCM", with equal steps). No
value ends further than half a step from its own: a line that would clip is no candidate.

The twin of cpp/pack.hpp, bit for bit: lanes are groups, and sums run over the columns in order.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from .arrays import Float32

Float16 = NDArray[np.float16]

BEYOND = (-0.5, 0.0, 0.25, 0.5)
"""How many steps the first lines reach beyond the least and the largest value."""

_ONE = np.float32(1)
_HALF = np.float32(0.5)
_INSIDE = np.float32(0.49)  # of a step: room for the rounding of a minimum


def _sums(x: Float32, least: Float32, scale: Float32, minimum: Float32, top: int) -> list[Float32]:
    """Sums of squared errors, codes, squared codes, codes * offsets from the least value, [groups]."""
    error, codes, squares, products = (np.zeros(x.shape[1], np.float32) for _ in range(4))
    inverse = _ONE / scale
    for column in x:
        code = np.rint(np.fmin(np.fmax((column - minimum) * inverse, np.float32(0)), np.float32(top)))
        off = column - (code * scale + minimum)
        error += off * off
        codes += code
        squares += code * code
        products += code * (column - least)
    return [error, codes, squares, products]


def better_lines(groups: Float32, scales: Float16, minima: Float16, top: int) -> tuple[Float16, Float16]:
    """Scales and minima [n] of groups [n, columns] for codes from 0 to `top`, from those that there are.

    The values are finite. What can't be made better stays.
    """
    x = np.ascontiguousarray(groups.T)
    count = np.float32(len(x))
    least, largest = x.min(axis=0), x.max(axis=0)
    span = largest - least
    total = np.zeros_like(least)
    for column in x:
        total += column - least
    scales, minima = scales.copy(), minima.copy()
    with np.errstate(all="ignore"):
        best = _sums(x, least, scales.astype(np.float32), minima.astype(np.float32), top)[0]
        finest, coarsest = span * (_ONE / np.float32(top + 0.98)), span * (_ONE / np.float32(top - 1))
        for below, above in product(BEYOND, BEYOND):
            scale = span * (_ONE / np.float32(top + below + above))
            minimum = least + np.float32(below) * scale
            for last in (False, True):
                half = np.fmin(np.fmax(scale, finest), coarsest).astype(np.float16)
                scale = half.astype(np.float32)
                floor = largest - np.float32(top + 0.49) * scale
                half_minimum = np.fmax(np.fmin(minimum, least + _INSIDE * scale), floor).astype(np.float16)
                minimum = half_minimum.astype(np.float32)
                error, codes, squares, products = _sums(x, least, scale, minimum, top)
                held = (largest - minimum <= np.float32(top + 0.5) * scale) & (
                    minimum - least <= _HALF * scale
                )
                better = held & (scale > 0) & (error < best)
                best = np.where(better, error, best)
                scales = np.where(better, half, scales)
                minima = np.where(better, half_minimum, minima)
                if not last:
                    spread = count * squares - codes * codes
                    slope = (count * products - codes * total) / spread
                    scale = np.where(spread > 0, slope, np.float32(0))
                    minimum = least + (total - scale * codes) * (_ONE / count)
    return scales, minima + np.float16(0)  # zero has one sign
