"""Quantizing float matrices to the packed formats, a group of columns at a time.

Scales and minima are rounded to float16 first and the codes are taken against the rounded values, so a weight
comes back within half a step (its group's scale). Rows of values so small that float16 has no step for them
are kept as they are beside the codes. The result depends on the values alone: the library packs the same bits
(cpp/quantize), on all threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .arrays import Float32
from .formats import FORMATS, WeightFormat, group_count
from .least_squares import better_lines
from .nf4 import BLOCK, nearest_levels
from .weights import Kept, Packed, Plain, dequantize

ReadRows = Callable[[slice], Plain]
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


def _rounded_scale(span: Float32, steps: int, start: int) -> Float16:
    """The float16 nearest to span / steps, or the next where `span` would lie past the last half step."""
    exact = span / np.float32(steps)
    _check_size("scale", exact, start)
    scale = exact.astype(np.float16)
    short = span > scale.astype(np.float32) * np.float32(steps + 0.5)
    return np.where(short, np.nextafter(scale, np.float16(np.inf)), scale)


def _rounded_minimum(low: Float32, start: int) -> Float16:
    """The largest float16 that is not above."""
    _check_size("minimum", np.abs(low), start)
    minimum = low.astype(np.float16)
    return np.where(minimum > low, np.nextafter(minimum, np.float16(-np.inf)), minimum)


def _steps(offsets: Float32, scale: Float16, low: int, high: int) -> Float32:
    """Offsets [rows, groups, columns] in steps of their scale, to the nearest integer in [low, high]."""
    step = np.where(scale == 0, 1, scale).astype(np.float32)[..., None]
    steps = offsets / step
    np.rint(steps, out=steps)
    return np.clip(steps, low, high, out=steps)


def _symmetric(groups: Float32, top: int, start: int) -> tuple[Float32, Float16]:
    """Steps from -top to top, and scales."""
    scale = _rounded_scale(np.abs(groups).max(axis=2), top, start)
    return _steps(groups, scale, -top, top), scale


def _spanning(groups: Float32, top: int, tail: int, start: int) -> tuple[Float32, Float16, Float16]:
    """Steps from 0 to top, scales and minima. The last `tail` columns are filling."""
    minimum = _rounded_minimum(groups.min(axis=2), start)
    scale = _rounded_scale(groups.max(axis=2) - minimum.astype(np.float32), top, start)
    lines = better_lines(groups.reshape(-1, groups.shape[2]), scale.ravel(), minimum.ravel(), top)
    scale, minimum = (half.reshape(scale.shape) for half in lines)
    steps = _steps(groups - minimum.astype(np.float32)[..., None], scale, 0, top)
    if tail:
        steps[:, -1, -tail:] = 0
    return steps, scale, minimum


def _by_table(values: Float32, start: int, out: Packed) -> tuple[Float32, NDArray[np.bool_]]:
    """Pack rows to the nearest values of nf4's table; float32 scales are never too coarse."""
    rows, columns = values.shape
    blocks = np.pad(values, ((0, 0), (0, -columns % BLOCK))).reshape(rows, -1, BLOCK)
    _check_finite(blocks, start)
    codes, peaks = nearest_levels(blocks)
    out.scales[:] = peaks / np.float32(127)
    whole = group_count(columns)
    out.codes[:] = FORMATS[out.format].pack(codes.reshape(rows, -1, BLOCK // 2)[:, :whole])
    return peaks.max(axis=1), np.zeros(rows, np.bool_)


def _too_coarse(groups: Float32, scales: Float16, form: WeightFormat) -> NDArray[np.bool_]:
    """Rows [rows] whose step, the largest of their groups', is much larger than their values ask for."""
    top = np.float32(form.top)
    largest = np.abs(groups).max(axis=(1, 2))
    if form.minima:  # a row of one value has no span at all
        wanted = np.maximum(np.ptp(groups, axis=2).max(axis=1) / top, largest / (2 * top))
    else:
        wanted = largest / top
    step = scales.max(axis=1).astype(np.float32)
    return np.asarray((step > wanted * np.float32(_COARSE)) & (largest > 0))


def _kept(rows: list[NDArray[np.int64]], values: list[Float32], largest: np.float32) -> Kept | None:
    """What of these rows counts beside the largest value of the matrix."""
    if not rows:
        return None
    numbers, held = np.concatenate(rows), np.concatenate(values)
    counts = np.abs(held).max(axis=1) >= largest * np.float32(_NOTHING)
    return Kept(numbers[counts], held[counts]) if counts.any() else None


def row_pieces(rows: int, columns: int, pieces: int = 1) -> Iterator[slice]:
    """Slices of rows to work on one after the other: some 100,000 values each, or so many times as much."""
    height = max(1, _PIECE // columns) * pieces
    for start in range(0, rows, height):
        yield slice(start, min(start + height, rows))


class Packer(Protocol):
    """Packs a piece of a matrix.

    pieces: how much of `row_pieces` it takes at a time.
    """

    pieces: int

    def pack(self, piece: Plain, start: int, out: Packed) -> tuple[Float32, NDArray[np.bool_]]:
        """Pack rows, of which `start` is the first, into the arrays of `out`, which has as many rows.

        Returns each row's largest magnitude, and whether float16 scales are too coarse for it. ValueError,
        with row and group: values that are not finite or too large for a float16 scale or minimum.
        """


class NumpyPacker:
    """Packs in numpy: on one thread, without the library."""

    pieces = 1

    def pack(self, piece: Plain, start: int, out: Packed) -> tuple[Float32, NDArray[np.bool_]]:
        """See `Packer.pack`."""
        form = FORMATS[out.format]
        values = dequantize(piece)
        count = out.scales.shape[1]
        if out.format == "nf4":
            return _by_table(values, start, out)
        tail = count * form.group - values.shape[1]
        mode: Literal["edge", "constant"] = "edge" if form.minima else "constant"  # widens no range
        with np.errstate(over="ignore", under="ignore"):
            groups = np.pad(values, ((0, 0), (0, tail)), mode=mode).reshape(-1, count, form.group)
            _check_finite(groups, start)
            if out.minima is None:
                steps, out.scales[:] = _symmetric(groups, form.top, start)
            else:
                steps, out.scales[:], out.minima[:] = _spanning(groups, form.top, tail, start)
            out.codes[:] = form.pack(steps)
            return np.abs(values).max(axis=1), _too_coarse(groups, out.scales, form)


def quantize_rows(
    shape: tuple[int, int], format: str, read: ReadRows, packer: Packer | None = None
) -> Packed:
    """Quantize a matrix given in pieces: `read(rows)` returns a slice of its rows, in order, each row once.

    Symmetric where the format has no minima, else with the best scale and minimum of a search. Holds the
    packed result and one piece. packer: numpy's unless another is given; the result is the same.
    ValueError as `Packer.pack`.
    """
    packer = packer or NumpyPacker()
    form = FORMATS[format]
    rows, columns = shape
    count = -(-columns // form.group)
    out = Packed(
        format,
        shape,
        np.empty((rows, group_count(columns), form.code_bytes), form.dtype),
        np.empty((rows, count), form.scale_type),
        np.empty((rows, count), form.scale_type) if form.minima else None,
    )
    kept_rows: list[NDArray[np.int64]] = []
    kept_values: list[Float32] = []
    largest = np.float32(0)
    for here in row_pieces(rows, columns, packer.pieces):
        piece = read(here)
        peaks, too_coarse = packer.pack(piece, here.start, out.part(here.start, here.stop))
        largest = max(largest, peaks.max(initial=0))
        coarse = np.flatnonzero(too_coarse)
        if len(coarse):
            kept_rows.append(coarse + here.start)
            kept_values.append(dequantize(Plain(piece.values[coarse], piece.format)))
    return replace(out, kept=_kept(kept_rows, kept_values, largest))
