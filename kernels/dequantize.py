"""Canonical weights back to float32: the meaning of every format, exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .weights import Canonical, Packed, Plain

Float32 = NDArray[np.float32]


def _plain(weight: Plain, rows: slice) -> Float32:
    values = weight.values[rows]
    if weight.format == "bf16":
        # bfloat16 is the upper half of a float32.
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _packed(weight: Packed, rows: slice) -> Float32:
    values = weight.integers(rows) * weight.scales[rows].astype(np.float32)[..., None]
    if weight.minima is not None:
        values += weight.minima[rows].astype(np.float32)[..., None]
    result: Float32 = values.reshape(len(values), -1)[:, : weight.shape[1]]
    if weight.kept is not None:
        start, stop, _ = rows.indices(weight.shape[0])
        first, last = np.searchsorted(weight.kept.rows, (start, stop))
        result[weight.kept.rows[first:last] - start] = weight.kept.values[first:last]
    return result


def dequantize(weight: Canonical, start: int = 0, stop: int | None = None) -> Float32:
    """Rows start to stop (all by default) of a matrix, or values of a vector, as a new float32 array.

    f16 and bf16 widen exactly; a product of code and scale is exact, with a minimum it is rounded once.
    """
    rows = slice(start, stop)
    return _plain(weight, rows) if isinstance(weight, Plain) else _packed(weight, rows)
