"""Rotary position embedding (arXiv 2104.09864) of heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from ..interface import RopeLayout, Rotation
from .arithmetic import EXACT
from .kernel import PLAIN, Draw, Kernel, Trial, called_with

SOME = 8
"""Heads that a program turns at most."""


class Turn(NamedTuple):
    """How heads of `dim` columns turn at int32 positions [rows]."""

    positions: Tensor
    rotation: Rotation
    dim: int

    def options(self) -> dict[str, object]:
        """Of `turned`."""
        return {"HALF": self.rotation.cos.shape[1], "PAIRS": self.rotation.layout == "interleaved"}


@triton.jit
def turned(x, at, columns, cos, sin, position, HALF: tl.constexpr, PAIRS: tl.constexpr, held):
    """A head of x whose first 2 HALF columns turn. x points to the heads, at: offsets of the values there.

    PAIRS: columns (2 i, 2 i + 1) turn together, else (i, i + HALF).
    """
    value = tl.load(x + at, mask=held, other=0.0)
    turning = columns < 2 * HALF
    if PAIRS:
        angle, first = columns // 2, columns % 2 == 0
        other = tl.where(first, columns + 1, columns - 1)
    else:
        angle, first = columns % HALF, columns < HALF
        other = tl.where(first, columns + HALF, columns - HALF)
    partner = tl.load(x + at - columns + other, mask=held & turning, other=0.0)
    c = tl.load(cos + position * HALF + angle, mask=held & turning, other=1.0)
    s = tl.load(sin + position * HALF + angle, mask=held & turning, other=0.0)
    side = partner * s
    return tl.where(turning, value * c + tl.where(first, -side, side), value)


@triton.jit
def _rope(
    x, out, positions, cos, sin, x_stride,
    HEADS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, SOME: tl.constexpr,
    HALF: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * SOME + tl.arange(0, SOME)[:, None]
    columns = tl.arange(0, WIDE)[None, :]
    held = (heads < HEADS) & (columns < DIM)
    position = tl.load(positions + row).to(tl.int64)
    at = heads * DIM + columns
    value = turned(x + row * x_stride, at, columns, cos, sin, position, HALF, PAIRS, held)
    tl.store(out + row * (HEADS * DIM) + at, value, mask=held)


def rope(x: Tensor, positions: Tensor, rotation: Rotation, head_dim: int | None = None) -> Tensor:
    """`Operations.rope`: x [rows, heads * head_dim], whose columns are contiguous -> new values."""
    dim = head_dim or 2 * rotation.cos.shape[1]
    rows, heads = len(x), x.shape[1] // dim
    out = x.new_empty(x.shape)
    some = min(SOME, triton.next_power_of_2(heads))
    if rows:
        _rope[rows, triton.cdiv(heads, some)](
            x, out, positions, rotation.cos, rotation.sin, x.stride(0), HEADS=heads, DIM=dim,
            WIDE=triton.next_power_of_2(dim), SOME=some, **Turn(positions, rotation, dim).options(), **EXACT,
        )  # fmt: skip
    return out


def _trials(draw: Draw) -> Iterator[Trial]:
    layouts: tuple[RopeLayout, ...] = ("half", "interleaved")
    for rows, heads, dim, half in ((1, 1, 64, 32), (3, 9, 80, 40), (17, 5, 96, 24), (2, 3, 22, 11)):
        for layout in layouts:
            angles = draw.normal(50, half)
            rotation = Rotation(angles.cos(), angles.sin(), layout)
            x, positions = draw.normal(rows, heads * dim + 5)[:, : heads * dim], draw.integers(0, 50, rows)
            yield called_with(x, positions, rotation, dim)


def _plain(x: Tensor, positions: Tensor, rotation: Rotation, head_dim: int | None = None) -> Tensor:
    return PLAIN.rope(x.contiguous(), positions, rotation, head_dim=head_dim)


KERNEL = Kernel("rope", rope, _plain, _trials, tolerance=1e-6)
