"""Quantizing float matrices to the canonical packed formats, groups of 32 columns at a time.

Scales and minima are rounded to float16 first and the codes are taken against the rounded values, so a weight
comes back within half a step (its group's scale). Rows of values so small that float16 has no step for them
are kept as they are beside the codes. The result depends on the values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernels.interface import Float32
from kernels.weights import GROUP, Kept, Packed, group_count

from ..arrays import as_array

PackedFormat = Literal["q4", "q8"]
ReadRows = Callable[[slice], Float32]
Float16 = NDArray[np.float16]

_LARGEST = 65504.0  # of float16
_COARSE = 1.25  # times the step that a row's values ask for, its float16 scale may be
_NOTHING = (
    1e-12  # of the largest value of a matrix: rows of smaller values were never trained, and may become zeros
)
_PIECE = 1 << 17  # values worked on at a time: small enough to stay in a core's cache


def _check_finite(groups: Float32, start: int) -> None:
    finite = np.isfinite(groups)
    if not finite.all():
        row = start + int(np.argmin(finite.all(axis=(1, 2))))
        raise ValueError(f"row {row} holds a value that is not finite")


def _check_size(what: str, values: Float32, start: int) -> None:
    if (values > _LARGEST).any():
        row, group = np.unravel_index(int(np.argmax(values)), values.shape)
        raise ValueError(
            f"row {start + row}, group {group} needs a {what} of {values[row, group]:g}, "
            f"above the largest float16, {_LARGEST:g}"
        )


def _rounded_scale(span: Float32, codes: int, start: int) -> Float16:
    """The float16 nearest to span / codes, or the next where `span` would lie past the last half step."""
    exact = span / np.float32(codes)
    _check_size("scale", exact, start)
    scale = exact.astype(np.float16)
    short = span > scale.astype(np.float32) * np.float32(codes + 0.5)
    return np.where(short, np.nextafter(scale, np.float16(np.inf)), scale)


def _steps(offsets: Float32, scale: Float16, low: int, high: int) -> Float32:
    """Offsets [rows, groups, 32] in steps of their group's scale, to the nearest integer in [low, high]."""
    step = np.where(scale == 0, 1, scale).astype(np.float32)[..., None]
    steps = offsets / step
    np.rint(steps, out=steps)
    return np.clip(steps, low, high, out=steps)


def _q8(groups: Float32, start: int) -> tuple[NDArray[np.int8], Float16]:
    scale = _rounded_scale(np.abs(groups).max(axis=2), 127, start)
    return _steps(groups, scale, -127, 127).astype(np.int8), scale


def _q4(groups: Float32, tail: int, start: int) -> tuple[NDArray[np.uint8], Float16, Float16]:
    """The last `tail` columns are filling: they count for neither scale nor minimum of their group."""
    if tail:
        groups[:, -1, GROUP - tail :] = groups[:, -1, :1]
    low, high = groups.min(axis=2), groups.max(axis=2)
    _check_size("minimum", np.abs(low), start)
    minimum = low.astype(np.float16)
    minimum = np.where(minimum > low, np.nextafter(minimum, np.float16(-np.inf)), minimum)
    base = minimum.astype(np.float32)
    scale = _rounded_scale(high - base, 15, start)
    codes = _steps(groups - base[..., None], scale, 0, 15).astype(np.uint8)
    if tail:
        codes[:, -1, GROUP - tail :] = 0
    return codes[..., :16] | codes[..., 16:] << np.uint8(4), scale, minimum


def _too_coarse(groups: Float32, scales: Float16, codes: int) -> NDArray[np.bool_]:
    """Rows [rows] whose step, the largest of their groups', is much larger than their values ask for."""
    largest = np.abs(groups).max(axis=(1, 2))
    if codes == 127:
        wanted = largest / np.float32(127)
    else:  # a row of one value has no span at all
        wanted = np.maximum(np.ptp(groups, axis=2).max(axis=1) / np.float32(15), largest / np.float32(30))
    step = scales.max(axis=1).astype(np.float32)
    return np.asarray((step > wanted * np.float32(_COARSE)) & (largest > 0))


def _kept(rows: list[NDArray[np.int64]], values: list[Float32], largest: np.float32) -> Kept | None:
    """What of these rows counts beside the largest value of the matrix."""
    if not rows:
        return None
    numbers, held = np.concatenate(rows), np.concatenate(values)
    counts = np.abs(held).max(axis=1) >= largest * np.float32(_NOTHING)
    return Kept(numbers[counts], held[counts]) if counts.any() else None


def row_pieces(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows that hold some 100,000 values each, to work on one after the other."""
    height = max(1, _PIECE // columns)
    for start in range(0, rows, height):
        yield slice(start, min(start + height, rows))


def quantize_rows(shape: tuple[int, int], format: PackedFormat, read: ReadRows) -> Packed:
    """Quantize a matrix given in pieces: `read(rows)` returns a slice of its rows as float32 [rows, columns].

    Holds the packed result and one piece. Raises ValueError, with row and group, for values that are not
    finite or too large for a float16 scale or minimum.
    """
    rows, columns = shape
    count = group_count(columns)
    tail = count * GROUP - columns
    codes = np.empty((rows, count, 16), np.uint8) if format == "q4" else np.empty((rows, count, 32), np.int8)
    scales = np.empty((rows, count), np.float16)
    minima = np.empty((rows, count), np.float16) if format == "q4" else None
    kept_rows: list[NDArray[np.int64]] = []
    kept_values: list[Float32] = []
    largest = np.float32(0)
    for here in row_pieces(rows, columns):
        with np.errstate(over="ignore", under="ignore"):
            values = read(here)
            groups = np.pad(values, ((0, 0), (0, tail))).reshape(-1, count, GROUP)
            _check_finite(groups, here.start)
            if minima is None:
                codes[here], scales[here] = _q8(groups, here.start)
            else:
                codes[here], scales[here], minima[here] = _q4(groups, tail, here.start)
            coarse = np.flatnonzero(_too_coarse(groups, scales[here], 127 if minima is None else 15))
            largest = max(largest, np.abs(values).max(initial=0))
            if len(coarse):
                kept_rows.append(coarse + here.start)
                kept_values.append(values[coarse])
    kept = _kept(kept_rows, kept_values, largest)
    return Packed(format, (rows, columns), codes, scales, minima, kept)


def quantize(w: Any, format: PackedFormat) -> Packed:
    """Quantize a float matrix [rows, columns]: q8 is symmetric, q4 spans minimum to maximum of a group.

    w: an array, a tensor or a list of rows. A group of zeros comes back as zeros. ValueError: unknown format,
    no matrix, or values that can't be held.
    """
    if format not in ("q4", "q8"):
        raise ValueError(f"format must be q4 or q8, not {format!r}")
    w = as_array(w)
    if w.ndim != 2 or 0 in w.shape:
        raise ValueError(f"a matrix with at least one row and column is needed, not the shape {w.shape}")
    return quantize_rows((w.shape[0], w.shape[1]), format, lambda rows: w[rows].astype(np.float32))
