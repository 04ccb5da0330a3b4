"""Canonical weights back to float32: the meaning of every format, exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .weights import GROUP, Packed, Plain, Weight

Float32 = NDArray[np.float32]


def _plain(weight: Plain, rows: slice) -> Float32:
    values = weight.values[rows]
    if weight.dtype == "bf16":
        # bfloat16 is the upper half of a float32.
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _packed(weight: Packed, rows: slice) -> Float32:
    codes, scales = weight.codes[rows], weight.scales[rows].astype(np.float32)[..., None]
    values = np.empty((*codes.shape[:2], GROUP), np.float32)
    if weight.minima is None:
        np.multiply(codes, scales, out=values)
    else:
        half = GROUP // 2
        np.multiply(codes & 15, scales, out=values[..., :half])
        np.multiply(codes >> 4, scales, out=values[..., half:])
        values += weight.minima[rows].astype(np.float32)[..., None]
    result = values.reshape(len(values), -1)[:, : weight.shape[1]]
    if weight.kept is not None:
        start, stop, _ = rows.indices(weight.shape[0])
        first, last = np.searchsorted(weight.kept.rows, (start, stop))
        result[weight.kept.rows[first:last] - start] = weight.kept.values[first:last]
    return result


def dequantize(weight: Weight, start: int = 0, stop: int | None = None) -> Float32:
    """Rows start to stop (all by default) of a matrix, or values of a vector, as a new float32 array.

    f16 and bf16 widen exactly; q8 is code * scale, exact; q4 is code * scale + minimum, rounded once.
    """
    rows = slice(start, stop)
    return _plain(weight, rows) if isinstance(weight, Plain) else _packed(weight, rows)
