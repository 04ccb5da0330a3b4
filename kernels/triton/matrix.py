"""Matrices on the device: how they are held, placed, and read row by row."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..formats import FORMATS
from ..stored import canonical, check_finite, release, view
from ..weights import Canonical, Plain, Stored, Weight, blocks_of_rows, dequantize
from . import layout

TILE = 64
"""Outputs that a program computes."""

PROGRAMS = 256
"""As many as keep a GPU's memory busy: with fewer tiles the inputs are cut into spans as well."""

STEP = 256
"""Inputs that a span is a multiple of: those of a super-block."""

SHORTEST_SPAN = 512

PLAIN_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


class Block(NamedTuple):
    """Rows of a matrix in one format, from row `start` on.

    data: uint8, packed as layout.py says; of a plain format the values [outputs, inputs], one row after the
    other. locks: int32, zero between kernels, for each tile of outputs.
    """

    format: str
    start: int
    outputs: int
    inputs: int
    data: Tensor
    locks: Tensor

    @property
    def plain(self) -> bool:
        """Whether it holds values as they are."""
        return not FORMATS[self.format].packed

    @property
    def values(self) -> Tensor:
        """The values [outputs, inputs] of a plain format."""
        dtype = PLAIN_TYPES[self.format]
        return (
            self.data[: self.outputs * self.inputs * dtype.itemsize]
            .view(dtype)
            .view(self.outputs, self.inputs)
        )

    def read(self, rows: slice | Tensor) -> Tensor:
        """Some of its rows as float32 [rows, inputs]."""
        if self.plain:
            return self.values[rows].float()
        return layout.read(self.data, self.format, self.outputs, self.inputs, rows)


class Matrix(NamedTuple):
    """A matrix [outputs, inputs] on the device, in blocks of rows, one below the other."""

    blocks: tuple[Block, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        return sum(block.outputs for block in self.blocks), self.blocks[0].inputs

    @property
    def nbytes(self) -> int:
        """Bytes of the weights on the device."""
        return sum(block.data.nbytes for block in self.blocks)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.blocks[0].data.device


def span_of(outputs: int, inputs: int) -> int:
    """Inputs whose products are added one after the other, before such sums are added: of the matrix's size
    alone, so that a row's bits do not depend on the step.
    """
    spans = max(1, min(PROGRAMS // -(-outputs // TILE), inputs // SHORTEST_SPAN))
    return -(-inputs // (spans * STEP)) * STEP


def new_block(format: str, start: int, outputs: int, inputs: int, device: torch.device) -> Block:
    """A block of zeros."""
    form = FORMATS[format]
    size = layout.layout(format, outputs, inputs).end if form.packed else form.nbytes((outputs, inputs))
    data = torch.zeros(max(size, layout.ALIGNMENT), dtype=torch.uint8, device=device)
    locks = torch.zeros(-(-outputs // TILE), dtype=torch.int32, device=device)
    return Block(format, start, outputs, inputs, data, locks)


def _parts(weight: Weight) -> list[Weight]:
    """A weight as such that have a single form and need no quantizing."""
    if not isinstance(weight, Plain) and weight.factor != 1.0:  # of a few files of NVFP4: as the values meant
        return [Plain(dequantize(canonical(weight)), "f32", weight.name)]
    if isinstance(weight, Stored):
        plain = view(weight)
        if plain is not None:
            return [plain]
        if layout.quantized_anew(weight):
            return list(blocks_of_rows(canonical(weight)))
        return [weight]
    return list(blocks_of_rows(weight))


def _format(part: Weight, dtype: torch.dtype | None) -> str:
    if isinstance(part, Plain) and dtype is not None:
        return next(name for name, own in PLAIN_TYPES.items() if own is dtype)
    return part.format


def _tensor(plain: Canonical, rows: slice) -> Tensor:
    """Values as they are."""
    assert isinstance(plain, Plain)
    if plain.format == "bf16":
        return torch.from_numpy(plain.values[rows].view("<i2").copy()).view(torch.bfloat16)
    return torch.from_numpy(plain.values[rows].copy())


def _fill(block: Block, start: int, part: Weight) -> None:
    """Write a part into its block, from row `start` on, in pieces."""
    if not isinstance(part, Plain):
        for row, rows in layout.pieces(part):
            layout.write(block.data, block.format, block.outputs, block.inputs, start + row, rows)
        return
    target = block.values[start : start + part.shape[0]]
    size = max(1, layout.VALUES_AT_ONCE // max(1, block.inputs))
    for row in range(0, len(target), size):
        here = slice(row, row + size)
        target[here] = _tensor(part, here).to(target.device)
        release(part.values[here].view(np.uint8))


def place(parts: tuple[Weight, ...], device: torch.device, dtype: torch.dtype | None = None) -> Matrix:
    """The parts one below the other. dtype: what plain values are rounded to; None leaves them as they are.

    Neighbours in the same format become one block. ValueError, naming the tensor: values that can't be held.
    """
    simple = [part for weight in parts for part in _parts(weight)]
    blocks: list[Block] = []
    start = 0
    for format, alike in groupby(simple, key=lambda part: _format(part, dtype)):
        members = list(alike)
        outputs = sum(part.shape[0] for part in members)
        block = new_block(format, start, outputs, members[0].shape[1], device)
        row = 0
        for part in members:
            if not isinstance(part, Stored):  # blocks are looked at as they are read
                check_finite(part)
            _fill(block, row, part)
            row += part.shape[0]
        blocks.append(block)
        start += outputs
    return Matrix(tuple(blocks))


def read(matrix: Matrix, rows: Tensor) -> Tensor:
    """Rows of a matrix by number, int [n] -> float32 [n, inputs]: the twin of `embedding`."""
    result = torch.zeros(len(rows), matrix.shape[1], device=matrix.device)
    for block in matrix.blocks:
        local = rows.long() - block.start
        here = (local >= 0) & (local < block.outputs)
        values = block.read(local.clamp(0, block.outputs - 1))
        result = torch.where(here[:, None], values, result)
    return result
