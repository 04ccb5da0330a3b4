"""The formats of weights, weights in them, and what those mean: numpy views, often straight into a
memory-mapped file, never copied by making one.

A matrix is [rows, columns] = [outputs, inputs]. Groups of columns share a scale; where they do not divide the
columns, the last group is filled up with codes that are worth nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]

GROUP = 32
"""Columns that share one scale, and that backends with integer products quantize together."""


def group_count(columns: int) -> int:
    """Number of groups that hold `columns` values."""
    return -(-columns // GROUP)


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How a matrix is held. dtype: of the array of its codes, or values.

    Packed: value = (code + low) * scale + minimum, with codes of so many bits, and float16 scales and (where
    it has any) minima of each `group` of columns. An array of 8-bit codes holds code + low. Of 4-bit codes
    byte i of a group holds column i in its low and column i + group / 2 in its high nibble.
    Plain (group 1): values of so many bits as they are; bfloat16 as its 16 bits.
    """

    name: str
    bits: int
    dtype: type[np.generic]
    group: int = 1
    minima: bool = False
    low: int = 0

    @property
    def packed(self) -> bool:
        """Whether it has codes and scales."""
        return self.group > 1

    @property
    def code_bytes(self) -> int:
        """Bytes of a group's codes, or of a value."""
        return self.bits * self.group // 8

    @property
    def top(self) -> int:
        """The most steps from a group's minimum, or from 0 in both directions where it has none."""
        return (1 << self.bits) - 1 if self.minima else (1 << self.bits - 1) - 1

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor: codes, scales and minima, or values."""
        of_group = self.code_bytes + (2 + 2 * int(self.minima) if self.packed else 0)
        return math.prod(shape[:-1]) * -(-shape[-1] // self.group) * of_group

    def pack(self, integers: NDArray[Any]) -> NDArray[Any]:
        """The array of codes for whole numbers of steps [rows, groups, group]: code + low of every value."""
        if self.bits == 8:
            return integers.astype(self.dtype)
        codes = (integers - self.low).astype(np.uint8)
        half = self.group // 2
        return codes[..., :half] | codes[..., half:] << np.uint8(4)

    def unpack(self, codes: NDArray[Any]) -> NDArray[Any]:
        """What `pack` was given."""
        if self.bits == 8:
            return codes
        integers = np.concatenate([codes & 15, codes >> 4], axis=-1)
        return integers.astype(np.int8) + np.int8(self.low) if self.low else integers


FORMATS = {
    format.name: format
    for format in (
        WeightFormat("q4", 4, np.uint8, GROUP, minima=True),
        WeightFormat("q8", 8, np.int8, GROUP, low=-128),
        WeightFormat("f32", 32, np.float32),
        WeightFormat("f16", 16, np.float16),
        WeightFormat("bf16", 16, np.uint16),
    )
}
"""Every format, by name. The table of cpp/formats.hpp is the same, or the library is not loaded."""


class BlockType(NamedTuple):
    """A type of blocks in a file: values of a block, its bytes, and the format that it is computed in.

    number: of the type in GGUF files (ggml.h).
    """

    values: int
    nbytes: int
    format: str
    number: int


BLOCKS = {
    "F32": BlockType(1, 4, "f32", 0),
    "F16": BlockType(1, 2, "f16", 1),
    "BF16": BlockType(1, 2, "bf16", 30),
    "Q4_0": BlockType(32, 18, "q4", 2),
    "Q4_1": BlockType(32, 20, "q4", 3),
    "Q5_0": BlockType(32, 22, "q8", 6),
    "Q5_1": BlockType(32, 24, "q8", 7),
    "Q8_0": BlockType(32, 34, "q8", 8),
    "Q2_K": BlockType(256, 84, "q8", 10),
    "Q3_K": BlockType(256, 110, "q8", 11),
    "Q4_K": BlockType(256, 144, "q4", 12),
    "Q5_K": BlockType(256, 176, "q8", 13),
    "Q6_K": BlockType(256, 210, "q8", 14),
    "IQ1_S": BlockType(256, 50, "q8", 19),
    "IQ1_M": BlockType(256, 56, "q8", 29),
    "IQ2_XXS": BlockType(256, 66, "q8", 16),
    "IQ2_XS": BlockType(256, 74, "q8", 17),
    "IQ2_S": BlockType(256, 82, "q8", 22),
    "IQ3_XXS": BlockType(256, 98, "q8", 18),
    "IQ3_S": BlockType(256, 110, "q8", 21),
    "IQ4_NL": BlockType(32, 18, "q8", 20),
    "IQ4_XS": BlockType(256, 136, "q8", 23),
    "TQ1_0": BlockType(256, 54, "q8", 34),
    "TQ2_0": BlockType(256, 66, "q8", 35),
    "MXFP4": BlockType(32, 17, "q8", 39),
}
"""Every type that can be computed with, by ggml's name (ggml-common.h)."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Unquantized values, [rows, columns] or [n], in a plain format."""

    values: NDArray[Any]
    format: str

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
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix in a packed format. codes: [rows, groups, bytes]; scales, minima: float16 [rows, groups].

    kept: rows that hold instead of what the codes say.
    """

    format: str
    shape: tuple[int, int]
    codes: NDArray[Any]
    scales: NDArray[np.float16]
    minima: NDArray[np.float16] | None = None
    kept: Kept | None = None

    def __post_init__(self) -> None:
        form = FORMATS[self.format]
        assert form.packed, self.format
        grid = (self.shape[0], -(-self.shape[1] // form.group))
        assert self.codes.shape == (*grid, form.code_bytes), (self.codes.shape, self.shape)
        assert self.codes.dtype == form.dtype, self.codes.dtype
        assert self.scales.shape == grid, self.scales.shape
        assert (self.minima is not None) == form.minima, f"whether {self.format} has minima"
        assert self.minima is None or self.minima.shape == grid, "one minimum a group"

    def integers(self, rows: slice = slice(None)) -> NDArray[Any]:
        """What the codes of some rows stand for, in steps: [rows, groups, columns of a group]."""
        return FORMATS[self.format].unpack(self.codes[rows])

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales, minima and rows that are kept."""
        minima = 0 if self.minima is None else self.minima.nbytes
        kept = 0 if self.kept is None else self.kept.values.nbytes
        return int(self.codes.nbytes + self.scales.nbytes + minima + kept)

    def part(self, start: int, stop: int) -> Packed:
        """Some of its rows, by their codes."""
        minima = None if self.minima is None else self.minima[start:stop]
        shape = (stop - start, self.shape[1])
        return Packed(self.format, shape, self.codes[start:stop], self.scales[start:stop], minima)


Canonical = Plain | Packed


@dataclass(frozen=True, slots=True)
class Stored:
    """A matrix in the blocks of a file. `kernels.stored.canonical` makes of it what a backend computes with.

    data: uint8 [rows, bytes of a row]. name: what a sentence about it calls it.
    """

    type: str
    shape: tuple[int, int]
    data: NDArray[np.uint8]
    name: str

    def __post_init__(self) -> None:
        rows, columns = self.shape
        values, nbytes, *_ = BLOCKS[self.type]
        assert columns % values == 0, (self.type, self.shape)
        assert self.data.shape == (rows, columns // values * nbytes), (self.data.shape, self.shape)

    @property
    def format(self) -> str:
        """What it becomes (but q8 instead of q4 where that can't hold it)."""
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
