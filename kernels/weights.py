"""Weights in the formats of `kernels.formats`, and what they mean: numpy views, often straight into a
memory-mapped file, never copied by making one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Float32
from .formats import BLOCKS, FORMATS, group_count


@dataclass(frozen=True, slots=True)
class Plain:
    """Unquantized values, [rows, columns] or [n], in a plain format.

    name: what a refusal calls a tensor of a file, whose values have to be finite; others may be anything.
    """

    values: NDArray[Any]
    format: str
    name: str = ""

    def __post_init__(self) -> None:
        form = FORMATS[self.format]
        assert not form.packed, self.format
        assert self.values.dtype == form.dtype, (self.values.dtype, self.format)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.values.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return int(self.values.nbytes)


class Kept(NamedTuple):
    """Rows of a packed matrix whose values are too small for float16 scales.

    rows: their numbers, ascending. values: float32 [n, columns].
    """

    rows: NDArray[np.int64]
    values: Float32


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix in a packed format. codes: [rows, groups of 32, bytes]; scales, minima: float16 or float32
    [rows, groups of the format], each the number that integers are multiplied with, or that is added.

    kept: rows that hold instead of what the codes say. name: what a refusal calls it. factor: what the
    values, and products with the matrix, are multiplied by besides.
    """

    format: str
    shape: tuple[int, int]
    codes: NDArray[Any]
    scales: NDArray[Any]
    minima: NDArray[Any] | None = None
    kept: Kept | None = None
    name: str = "a matrix"
    factor: float = 1.0

    def __post_init__(self) -> None:
        form = FORMATS[self.format]
        assert form.packed, self.format
        rows, columns = self.shape
        codes, grid = (rows, group_count(columns), form.code_bytes), (rows, -(-columns // form.group))
        assert self.codes.shape == codes, (self.codes.shape, self.shape)
        assert self.codes.dtype == form.dtype, self.codes.dtype
        assert self.scales.shape == grid, self.scales.shape
        assert self.scales.dtype == form.scale_type, self.scales.dtype
        assert (self.minima is not None) == form.minima, f"whether {self.format} has minima"
        assert self.minima is None or self.minima.shape == grid, "one minimum a group"

    def integers(self, rows: slice = slice(None)) -> NDArray[Any]:
        """What the codes of some rows stand for, in steps: [rows, groups of 32, 32]."""
        return FORMATS[self.format].unpack(self.codes[rows])

    @property
    def nbytes(self) -> int:
        """Bytes of it in a backend's memory, rows that are kept included."""
        kept = 0 if self.kept is None else self.kept.values.nbytes
        return FORMATS[self.format].nbytes(self.shape) + kept

    def part(self, start: int, stop: int) -> Packed:
        """Some of its rows, by their codes."""
        minima = None if self.minima is None else self.minima[start:stop]
        shape, codes, scales = (stop - start, self.shape[1]), self.codes[start:stop], self.scales[start:stop]
        return replace(self, shape=shape, codes=codes, scales=scales, minima=minima, kept=None)


Canonical = Plain | Packed


@dataclass(frozen=True, slots=True)
class Stored:
    """A matrix in the blocks of a file. `kernels.stored.canonical` makes of it what a backend computes with.

    data: uint8 [rows, bytes of a row]. name: what a sentence about it calls it. factor: see `Packed`.
    """

    type: str
    shape: tuple[int, int]
    data: NDArray[np.uint8]
    name: str
    factor: float = 1.0

    def __post_init__(self) -> None:
        rows, columns = self.shape
        values, nbytes, *_ = BLOCKS[self.type]
        assert columns % values == 0, (self.type, self.shape)
        assert self.data.shape == (rows, columns // values * nbytes), (self.data.shape, self.shape)

    @property
    def format(self) -> str:
        """What it becomes."""
        return BLOCKS[self.type].format

    @property
    def nbytes(self) -> int:
        """Bytes of what it becomes."""
        return FORMATS[self.format].nbytes(self.shape)


Weight = Plain | Packed | Stored


def _plain(weight: Plain, rows: slice) -> Float32:
    values = weight.values[rows]
    if weight.format == "bf16":
        # bfloat16 is the upper half of a float32.
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _packed(weight: Packed, rows: slice) -> Float32:
    scales = weight.scales[rows].astype(np.float32)
    integers = weight.integers(rows).reshape(len(scales), -1)
    group = FORMATS[weight.format].group
    missing = scales.shape[1] * group - integers.shape[1]  # of a group of more than 32 columns
    groups = np.pad(integers, ((0, 0), (0, missing))).reshape(*scales.shape, group)
    values = groups * scales[..., None]
    if weight.minima is not None:
        values += weight.minima[rows].astype(np.float32)[..., None]
    if weight.factor != 1.0:
        values *= np.float32(weight.factor)
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


def blocks_of_rows(weight: Canonical) -> list[Canonical]:
    """The weight as blocks of rows, one below the other, that each have a single form."""
    if isinstance(weight, Plain) or weight.kept is None:
        return [weight]
    blocks: list[Canonical] = []
    end, rows = 0, weight.kept.rows
    runs = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) > 1) + 1)
    for run in runs:
        start, stop = int(rows[run[0]]), int(rows[run[-1]]) + 1
        if start > end:
            blocks.append(weight.part(end, start))
        blocks.append(Plain(weight.kept.values[run[0] : run[-1] + 1], "f32"))
        end = stop
    if end < weight.shape[0]:
        blocks.append(weight.part(end, weight.shape[0]))
    return blocks
