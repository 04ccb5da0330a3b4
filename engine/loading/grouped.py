"""Matrices that other programs have quantized: integers, and scales that groups of columns share."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.arrays import Float32
from kernels.formats import ARRAYS, BLOCKS, FORMATS, GROUP, group_count
from kernels.native.packing import fastest_packer
from kernels.quantize import quantize_rows, row_pieces
from kernels.stored import mapping_of, release
from kernels.weights import Kept, Packed, Plain, Stored, Weight

from ..models.tensor_specs import TensorSpec
from .fields import invalid, shown
from .stored import StoredTensor

PIECES = 32  # of `row_pieces`: what is stored by columns is read better many rows at a time


class Rows(NamedTuple):
    """Some rows: value = integer * scale. integers: int16 [rows, columns]; scales: [rows, groups]."""

    integers: NDArray[np.int16]
    scales: Float32


@dataclass(frozen=True, slots=True)
class JoinedTensor(ABC):
    """A matrix [rows, columns] like a `StoredTensor`, but stored in several.

    type: what people call it. sources: the tensors it is stored in.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    sources: tuple[StoredTensor, ...]

    @property
    @abstractmethod
    def format(self) -> str:
        """The format that holds it as it is."""

    @abstractmethod
    def part(self, spec: TensorSpec, turned: bool = False) -> JoinedTensor:
        """As `StoredTensor.part`."""

    @abstractmethod
    def _as_it_is(self, after: Callable[[int], None] | None) -> Weight:
        """The matrix in its own format. ValueError: it is not as it should be."""

    @abstractmethod
    def _values(self, rows: slice) -> Float32:
        """Some rows as the values they stand for. ValueError, likewise."""

    @property
    def label(self) -> str:
        """What people call it."""
        return self.type

    @property
    def nbytes(self) -> int:
        """Bytes in the files."""
        return sum(source.data.nbytes for source in self.sources)

    def mappings(self) -> Iterator[mmap.mmap]:
        """The mapped files."""
        yield from (mapped for source in self.sources if (mapped := mapping_of(source.data)) is not None)

    def to_weight(
        self, format: str, threads: int | None = None, after: Callable[[int], None] | None = None
    ) -> Weight:
        """As `StoredTensor.to_weight`."""

        def read(rows: slice) -> Plain:
            values = Plain(self._values(rows), "f32")
            self._tell(rows, after)
            return values

        try:
            if format == self.format:
                return self._as_it_is(after)
            if FORMATS[format].packed:
                return quantize_rows(self._matrix, format, read, fastest_packer(threads))
            whole = np.empty(self.shape, np.float32)
            for rows in self._pieces():
                whole[rows] = read(rows).values
            return Plain(whole, "f32", f"tensor {shown(self.name)}")
        except ValueError as error:
            raise ValueError(f"tensor {shown(self.name)}: {error}") from None
        finally:
            for source in self.sources:
                release(source.data)

    @property
    def _matrix(self) -> tuple[int, int]:
        rows, columns = self.shape
        return rows, columns

    def _pieces(self) -> Iterator[slice]:
        return row_pieces(*self._matrix, PIECES)

    def _tell(self, rows: slice, after: Callable[[int], None] | None) -> None:
        if after is not None:
            after(self.nbytes * (rows.stop - rows.start) // self.shape[0])


def join(
    path: Path,
    tensors: Mapping[str, StoredTensor],
    parts: Sequence[str],
    make: Callable[[str], JoinedTensor],
    name: str = ".weight",
) -> dict[str, StoredTensor | JoinedTensor]:
    """The tensors, with each BASE + parts[0], and whatever of the other parts is beside it, as BASE + name.

    make: of a base. EngineError(model_invalid): it is there besides.
    """
    bases = [each.removesuffix(parts[0]) for each in tensors if each.endswith(parts[0])]
    taken = {base + part for base in bases for part in parts}
    joined: dict[str, StoredTensor | JoinedTensor] = {
        each: tensor for each, tensor in tensors.items() if each not in taken
    }
    for base in bases:
        if base + name in joined:
            raise invalid(path, f"tensor {shown(base + name)} is stored twice, quantized and as it was")
        joined[base + name] = make(base)
    return joined


@dataclass(frozen=True, slots=True)
class GroupedTensor(JoinedTensor):
    """A matrix of integers from low to high, with a scale for each group of columns.

    group: a multiple of the columns of formats. read: gives some rows. scale_bits: of the scales as they are
    stored.
    """

    low: int
    high: int
    group: int
    read: Callable[[slice], Rows]
    scale_bits: int = 16

    @property
    def format(self) -> str:
        """The format of the fewest bits that holds the integers and their scales."""
        if self.scale_bits == 32 and self.group % FORMATS["q8_64"].group == 0:
            return "q8_64"
        fewest = ((4, "q4_0"), (5, "q5_0"))
        return next(
            (name for bits, name in fewest if self.low >= -(1 << bits - 1) and self.high < 1 << bits - 1),
            "q8",
        )

    def part(self, spec: TensorSpec, turned: bool = False) -> GroupedTensor:
        """As `StoredTensor.part`."""
        if self.shape == spec.shape:
            return self
        assert not turned, "integers are packed"
        read, first, step = self.read, spec.first_row, spec.row_step

        def of_part(rows: slice) -> Rows:
            start = first + rows.start * step
            found = read(slice(start, start + (rows.stop - rows.start - 1) * step + 1))
            return Rows(found.integers[::step], found.scales[::step])

        return replace(self, shape=spec.shape, read=of_part)

    def _checked(self, rows: slice) -> Rows:
        with np.errstate(all="ignore"):  # what is not finite is refused
            found = self.read(rows)
        if found.integers.min() < self.low or found.integers.max() > self.high:
            raise ValueError(f"integers beyond {self.low} and {self.high}, which its zero points make")
        finite = np.isfinite(found.scales).all(axis=1)
        if not finite.all():
            raise ValueError(f"row {rows.start + int(np.argmin(finite))} has a scale that is not finite")
        return found

    def _values(self, rows: slice) -> Float32:
        return self._multiplied(*self._checked(rows), np.arange(rows.start, rows.stop))

    def _multiplied(
        self, integers: NDArray[np.int16], scales: Float32, numbers: NDArray[np.int64]
    ) -> Float32:
        """The values of some rows, of these numbers."""
        spread = np.repeat(scales, self.group, axis=1)[:, : self.shape[1]]
        with np.errstate(over="ignore"):
            values: Float32 = integers.astype(np.float32) * spread
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            raise ValueError(f"row {numbers[np.argmin(finite)]} holds a value that is not finite")
        return values

    def _as_it_is(self, after: Callable[[int], None] | None) -> Weight:
        """The integers with their scales; those of groups that are split are repeated.

        Integers of 4 and 5 bits become blocks. Rows with a scale that float16 does not hold are kept as
        float32.
        """
        form = FORMATS[self.format]
        rows, columns = self._matrix
        count = -(-columns // form.group)
        codes = np.empty((rows, group_count(columns), GROUP), np.int8)
        scales = np.empty((rows, count), form.scale_type)
        kept: list[tuple[NDArray[np.int64], Float32]] = []
        for here in self._pieces():
            integers, wide = self._checked(here)
            codes[here] = np.pad(integers, ((0, 0), (0, -columns % GROUP))).reshape(-1, *codes.shape[1:])
            with np.errstate(over="ignore", under="ignore"):
                exact = wide.astype(form.scale_type)
            scales[here] = np.repeat(exact, -(-self.group // form.group), axis=1)[:, :count]
            odd = np.flatnonzero((exact != wide).any(axis=1))
            if len(odd):
                numbers = odd + here.start
                kept.append((numbers, self._multiplied(integers[odd], wide[odd], numbers)))
            self._tell(here, after)
        rest = Kept(*(np.concatenate(part) for part in zip(*kept, strict=True))) if kept else None
        if form.name in _BLOCKS and rest is None and columns % GROUP == 0:
            return _blocks(_BLOCKS[form.name], (rows, columns), codes, scales, self.name)
        return Packed(form.name if form.name in ARRAYS else "q8", (rows, columns), codes, scales, None, rest)


_BLOCKS = {"q4_0": "Q4_0", "q5_0": "Q5_0"}
"""Formats that backends take as blocks of a file."""


def _blocks(
    type: str, shape: tuple[int, int], integers: NDArray[np.int8], scales: NDArray[Any], name: str
) -> Stored:
    """Blocks of ggml: 32 integers, from half of their range below zero on, and a scale."""
    rows, columns = shape
    data = np.empty((rows, columns // GROUP, BLOCKS[type].nbytes), np.uint8)
    data[..., :2] = np.ascontiguousarray(scales, "<f2").view(np.uint8).reshape(*scales.shape, 2)
    half = GROUP // 2
    for here in row_pieces(rows, columns, PIECES):
        codes = (integers[here] - FORMATS[BLOCKS[type].format].low).astype(np.uint8)
        low = codes & 15
        data[here, :, -half:] = low[..., :half] | low[..., half:] << np.uint8(4)
        if type == "Q5_0":
            data[here, :, 2:6] = np.packbits(codes >> 4, axis=-1, bitorder="little")
    return Stored(type, shape, data.reshape(rows, -1), f"tensor {shown(name)}")
