"""Operations on single values: sums, factors, caps, gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

import triton
import triton.language as tl
from torch import Tensor

from ..interface import Gate
from .arithmetic import EXACT, tanh32
from .arithmetic import gated as gate_values
from .kernel import PLAIN, Draw, Kernel, Trial, called_with

SIZE = 1024
"""Columns of a program."""


@triton.jit
def _values(
    a, b, out, a_stride, b_stride, columns, number,
    KIND: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    held = at < columns
    x = tl.load(a + row * a_stride + at, mask=held, other=0.0)
    if KIND == "scale":
        y = x * number
    elif KIND == "cap":
        y = tanh32(tl.div_rn(x, tl.full(x.shape, number, tl.float32))) * number
    elif KIND == "add":
        y = x + tl.load(b + row * b_stride + at, mask=held, other=0.0)
    else:
        y = gate_values(x, tl.load(b + row * b_stride + at, mask=held, other=0.0), KIND)
    tl.store(out + row * columns + at, y, mask=held)


def _launch(kind: str, a: Tensor, b: Tensor | None = None, number: float = 0.0) -> Tensor:
    rows, columns = a.shape
    out = a.new_empty(a.shape)
    other = a if b is None else b
    if rows:
        _values[rows, triton.cdiv(columns, SIZE)](
            a, other, out, a.stride(0), other.stride(0), columns, number, KIND=kind, SIZE=SIZE, **EXACT
        )
    return out


def scale(x: Tensor, factor: float) -> Tensor:
    """`Operations.scale`."""
    return _launch("scale", x, number=factor)


def cap(x: Tensor, limit: float) -> Tensor:
    """`Operations.cap`."""
    return _launch("cap", x, number=limit)


def add(a: Tensor, b: Tensor) -> Tensor:
    """`Operations.add`."""
    return _launch("add", a, b)


def gated(x: Tensor, gate: Gate = "silu", up: Tensor | None = None) -> Tensor:
    """`Operations.gated`."""
    first, second = x.chunk(2, dim=1) if up is None else (x, up)
    return _launch(gate, first, second)


def _plain_gated(x: Tensor, gate: Gate = "silu", up: Tensor | None = None) -> Tensor:
    return PLAIN.gated(x.contiguous(), gate, up)


_SIZES = ((1, 1), (2, 1030), (7, 6))


def _one(number: float) -> Callable[[Draw], Iterator[Trial]]:
    def trials(draw: Draw) -> Iterator[Trial]:
        for size in _SIZES:
            yield called_with(draw.normal(*size, scale=4.0), number)

    return trials


def _two(draw: Draw) -> Iterator[Trial]:
    for rows, columns in _SIZES:
        yield called_with(draw.normal(rows, columns + 7)[:, 7:], draw.normal(rows, columns))


def _gates(draw: Draw) -> Iterator[Trial]:
    kinds: tuple[Gate, ...] = get_args(Gate)
    for kind in kinds:
        for rows, columns in _SIZES:
            x, up = draw.normal(rows, 2 * columns, scale=6.0), draw.normal(rows, columns)
            yield called_with(x, kind)
            yield called_with(x[:, :columns], kind, up)


KERNELS = (
    Kernel("scale", scale, PLAIN.scale, _one(0.7), tolerance=1e-6),
    Kernel("cap", cap, PLAIN.cap, _one(5.0), tolerance=1e-6),
    Kernel("add", add, PLAIN.add, _two, tolerance=1e-6),
    Kernel("gated", gated, _plain_gated, _gates, tolerance=1e-6),
)
