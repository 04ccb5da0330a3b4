"""Matrices that other programs have quantized: integers, and scales that groups of columns share."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.interface import Float32
from kernels.native.packing import fastest_packer
from kernels.quantize import quantize_rows, row_pieces
from kernels.stored import mapping_of, release
from kernels.weights import FORMATS, Kept, Packed, Plain, Weight

from .fields import shown
from .stored import StoredTensor

_PIECES = 32  # of `row_pieces`: what is stored by columns is read better many rows at a time


class Rows(NamedTuple):
    """Some rows: value = integer * scale. integers: int16 [rows, columns]; scales: [rows, groups]."""

    integers: NDArray[np.int16]
    scales: Float32


@dataclass(frozen=True, slots=True)
class GroupedTensor:
    """A matrix [rows, columns] like a `StoredTensor`, but stored in several.

    type: what people call it. low, high: the integers there may be. group: columns that share a scale, a
    multiple of those of the formats. sources: the tensors it is stored in. read: gives some rows.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    low: int
    high: int
    group: int
    sources: tuple[StoredTensor, ...]
    read: Callable[[slice], Rows]

    @property
    def format(self) -> str:
        """The format of the fewest bits that holds the integers."""
        return narrowest(self.low, self.high)

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

    def part(self, first: int, rows: int) -> GroupedTensor:
        """Some of the rows."""
        read = self.read
        shape = (rows, *self.shape[1:])
        return replace(
            self, shape=shape, read=lambda part: read(slice(part.start + first, part.stop + first))
        )

    def to_weight(
        self, format: str, threads: int | None = None, after: Callable[[int], None] | None = None
    ) -> Weight:
        """As `StoredTensor.to_weight`."""
        try:
            if format == self.format:
                return self._packed(after)
            if FORMATS[format].packed:
                return quantize_rows(self._matrix, format, self._values(after), fastest_packer(threads))
            values = np.empty(self.shape, np.float32)
            read = self._values(after)
            for rows in self._pieces():
                values[rows] = read(rows).values
            return Plain(values, "f32")
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
        return row_pieces(*self._matrix, _PIECES)

    def _checked(self, rows: slice, after: Callable[[int], None] | None) -> Rows:
        found = self.read(rows)
        if after is not None:
            after(self.nbytes * (rows.stop - rows.start) // self.shape[0])
        if found.integers.min() < self.low or found.integers.max() > self.high:
            raise ValueError(f"integers beyond {self.low} and {self.high}, which its zero points make")
        finite = np.isfinite(found.scales).all(axis=1)
        if not finite.all():
            raise ValueError(f"row {rows.start + int(np.argmin(finite))} has a scale that is not finite")
        return found

    def _values(self, after: Callable[[int], None] | None) -> Callable[[slice], Plain]:
        def read(rows: slice) -> Plain:
            found = self._checked(rows, after)
            scales = np.repeat(found.scales, self.group, axis=1)[:, : self.shape[1]]
            return Plain(found.integers.astype(np.float32) * scales, "f32")

        return read

    def _packed(self, after: Callable[[int], None] | None) -> Packed:
        """The integers as they are. Groups are split, which repeats their scales; rows whose scales float16
        does not hold are kept as float32.
        """
        form = FORMATS[self.format]
        rows, columns = self._matrix
        count = -(-columns // form.group)
        codes = np.empty((rows, count, form.code_bytes), form.dtype)
        halves = np.empty((rows, count), np.float16)
        kept: list[tuple[NDArray[np.int64], Float32]] = []
        for here in self._pieces():
            integers, scales = self._checked(here, after)
            tail = count * form.group - columns
            steps = np.pad(integers, ((0, 0), (0, tail))).reshape(-1, count, form.group)
            codes[here] = form.pack(steps)
            with np.errstate(over="ignore", under="ignore"):
                exact = scales.astype(np.float16)
            halves[here] = np.repeat(exact, self.group // form.group, axis=1)[:, :count]
            odd = np.flatnonzero((exact != scales).any(axis=1))
            if len(odd):
                wide = np.repeat(scales[odd], self.group, axis=1)[:, :columns]
                kept.append((odd + here.start, integers[odd].astype(np.float32) * wide))
        rest = Kept(*(np.concatenate(part) for part in zip(*kept, strict=True))) if kept else None
        return Packed(form.name, (rows, columns), codes, halves, None, rest)


def narrowest(low: int, high: int) -> str:
    """The name of the format of the fewest bits that holds integers from low to high with float16 scales."""
    held = [
        form
        for form in FORMATS.values()
        if form.packed and not form.minima and form.low <= low and high <= form.low + (1 << form.bits) - 1
    ]
    return min(held, key=lambda form: form.bits).name
