"""The 4 bits of QLoRA (Dettmers et al. 2023, arXiv 2305.14314): 64 values share their largest magnitude, and
each is the nearest of sixteen values between -1 and 1, which normally distributed weights meet equally often.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays import Float32

BLOCK = 64

LEVELS = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
        *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
        *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
        *(0.7229568362236023, 1.0),
    ],
    np.float32,
)
"""The sixteen values: appendix E of the paper."""

BOUNDS = (LEVELS[1:] + LEVELS[:-1]) / np.float32(2)
"""Halfway from each to the next; what lies there gets the smaller one."""


def nearest_levels(blocks: Float32) -> tuple[NDArray[np.uint8], Float32]:
    """Codes of values [..., BLOCK], and their largest magnitudes [...]. Zeros get the code of 0."""
    peaks: Float32 = np.abs(blocks).max(axis=-1)
    shares = blocks / np.where(peaks == 0, np.float32(1), peaks)[..., None]
    return np.searchsorted(BOUNDS, shares, side="left").astype(np.uint8), peaks
