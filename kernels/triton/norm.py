"""Root mean square norms (arXiv 1910.07467), with the sum before them if there is one."""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl
from torch import Tensor

from .arithmetic import EXACT
from .kernel import PLAIN, Draw, Kernel, Trial, called_with


@triton.jit
def _norm(
    x, y, weight, total, out, x_stride, y_stride, eps, share,
    RUNS: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    row, run = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, WIDE)
    held = columns < WIDTH
    at = run * WIDTH + columns
    value = tl.load(x + row * x_stride + at, mask=held, other=0.0)
    if ADDED:
        value = value + tl.load(y + row * y_stride + at, mask=held, other=0.0)
        tl.store(total + row * (RUNS * WIDTH) + at, value, mask=held)
    root = tl.sqrt_rn(tl.sum(value * value, 0) * share + eps)
    result = tl.div_rn(value, tl.broadcast_to(root, value.shape)) * tl.load(weight + columns, mask=held)
    tl.store(out + row * (RUNS * WIDTH) + at, result, mask=held)


def _launch(x: Tensor, y: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    width = len(weight)
    runs, wide = x.shape[1] // width, triton.next_power_of_2(width)
    out = x.new_empty(x.shape)
    total = out if y is None else x.new_empty(x.shape)
    other = x if y is None else y
    if len(x):
        _norm[len(x), runs](
            x, other, weight, total, out, x.stride(0), other.stride(0), eps, 1 / width, RUNS=runs,
            WIDTH=width, WIDE=wide, ADDED=y is not None, num_warps=min(16, max(1, wide // 512)), **EXACT,
        )  # fmt: skip
    return total, out


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`Operations.rms_norm` of x, whose columns are contiguous."""
    return _launch(x, None, weight, eps)[1]


def add_norm(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum of x and y, and its norm."""
    return _launch(x, y, weight, eps)


@triton.jit
def _center(x, out, x_stride, width, share, WIDE: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    held = columns < width
    value = tl.load(x + row * x_stride + columns, mask=held, other=0.0)
    tl.store(out + row * width + columns, value - tl.sum(value, 0) * share, mask=held)


def center(x: Tensor) -> Tensor:
    """`Operations.center` of x, whose columns are contiguous."""
    rows, width = x.shape
    out, wide = x.new_empty(x.shape), triton.next_power_of_2(width)
    if rows:
        _center[rows,](
            x, out, x.stride(0), width, 1 / width, WIDE=wide, num_warps=min(16, max(1, wide // 512)), **EXACT
        )
    return out


def _plain_center(x: Tensor) -> Tensor:
    return PLAIN.center(x.contiguous())


def _center_trials(draw: Draw) -> Iterator[Trial]:
    for rows, _, width in _SIZES:
        yield called_with(draw.normal(rows, width + 3)[:, :width])


def _plain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return PLAIN.rms_norm(x.contiguous(), weight, eps)


def _plain_sum(x: Tensor, y: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total = x + y
    return total, PLAIN.rms_norm(total, weight, eps)


_SIZES = ((1, 1, 64), (3, 5, 80), (2, 1, 2050), (65, 1, 7))


def _trials(draw: Draw) -> Iterator[Trial]:
    for rows, runs, width in _SIZES:
        x, weight = draw.normal(rows, runs * width + 3)[:, : runs * width], draw.normal(width)
        yield called_with(x, weight, 1e-5)


def _sum_trials(draw: Draw) -> Iterator[Trial]:
    for rows, runs, width in _SIZES:
        x, y, weight = draw.normal(rows, runs * width), draw.normal(rows, runs * width), draw.normal(width)
        yield called_with(x, y, weight, 1e-6)


KERNELS = (
    Kernel("rms_norm", rms_norm, _plain, _trials, tolerance=2e-6),
    Kernel("center", center, _plain_center, _center_trials, tolerance=2e-6),
    Kernel("add_norm", add_norm, _plain_sum, _sum_trials, tolerance=2e-6),
)
