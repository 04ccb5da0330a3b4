"""Matrices to try kernels on: small ones of odd sizes, in every format."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..blocks import READERS
from ..formats import BLOCKS
from ..quantize import quantize_rows
from ..weights import Plain, Stored, Weight
from .kernel import Draw
from .matrix import Matrix, place

_HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q8_0": (0,),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "Q3_K": (108,),
    "Q2_K": (80, 82),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}
"""Where float16 numbers stand in the blocks of a type."""


def stored(type: str, rows: int, draw: np.random.Generator, blocks_a_row: int = 2) -> Stored:
    """A matrix of a type of blocks: but for their scales of any bits."""
    values, nbytes, *_ = BLOCKS[type]
    blocks = draw.integers(0, 256, (rows, blocks_a_row, nbytes), np.uint8)
    for at in _HALVES.get(type, ()):
        numbers = draw.standard_normal((rows, blocks_a_row, 1), np.float32) * np.float32(0.01)
        blocks[..., at : at + 2] = numbers.astype("<f2").view(np.uint8)
    if type == "MXFP4":
        blocks[..., 0] = draw.integers(110, 126, (rows, blocks_a_row))
    return Stored(type, (rows, blocks_a_row * values), blocks.reshape(rows, -1), type)


def weight(format: str, shape: tuple[int, int], draw: Draw) -> Weight:
    """Normally distributed values in a format that values are quantized to, or a plain one.

    A row in the middle is too small for scales in float16.
    """
    values = draw.generator.standard_normal(shape, np.float32) * np.float32(0.02)
    if format == "f32":
        return Plain(values, format)
    if format == "f16":
        return Plain(values.astype(np.float16), format)
    if format == "bf16":
        return Plain((values.view(np.uint32) >> 16).astype(np.uint16), format)
    values[shape[0] // 2] *= np.float32(1e-6)
    return quantize_rows(shape, format, lambda here: Plain(values[here], "f32"))


def matrices(draw: Draw, rows: int = 37) -> Iterator[Matrix]:
    """One of every format, of its own number of columns."""
    for type in READERS:
        yield place((stored(type, rows, draw.generator, 1),), draw.device)
    for format, columns in (("q4", 60), ("q8", 33), ("nf4", 72), ("f32", 71), ("f16", 71), ("bf16", 71)):
        yield place((weight(format, (rows, columns), draw),), draw.device)
