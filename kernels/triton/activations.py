"""Rows of activations as integers, as docs/numerics.md has it: groups of 32 columns share a scale."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..formats import GROUP, group_count
from .arithmetic import EXACT

GROUPS_AT_ONCE = 32
"""Groups of one row that a program quantizes."""


class Quantized(NamedTuple):
    """Rows as integers. numbers: int8 [planes, rows, groups, 32], of two planes the higher first. scales:
    float32 [groups, rows]. sums: float32 [groups, 3, rows], of all, of the first and of the last 16 columns.
    """

    numbers: Tensor
    scales: Tensor
    sums: Tensor


@triton.jit
def _quantize(
    x,
    stride,
    numbers,
    plane,
    scales,
    sums,
    rows,
    columns,
    groups,
    PLANES: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """One row, AT_ONCE groups of it."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * AT_ONCE + tl.arange(0, AT_ONCE)
    column = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    value = tl.load(x + row * stride + column, mask=column < columns, other=0.0)
    magnitude = tl.abs(value)
    usable = magnitude < float("inf")  # neither infinite nor NaN
    peak = tl.max(tl.where(usable, magnitude, 0.0), axis=1)
    finite = tl.min(usable.to(tl.int32), axis=1) == 1
    limit = 32639.0 if PLANES == 2 else 127.0
    counts = finite & (peak >= 7.888609052210118e-31)  # 2^-100
    safe = tl.where(counts, peak, 1.0)
    inverse = tl.where(counts, tl.div_rn(tl.full(safe.shape, limit, tl.float32), safe), 0.0)
    scale = tl.where(counts, tl.div_rn(safe, tl.full(safe.shape, limit, tl.float32)), 0.0)
    scale = tl.where(finite, scale, float("nan"))
    scaled = tl.where(finite[:, None], value, 0.0) * inverse[:, None]
    # At 1.5 * 2^23 float32 steps by 1: adding it rounds to nearest even.
    number = ((scaled + 12582912.0) - 12582912.0).to(tl.int32)
    at = (row * groups + group[:, None]) * 32 + tl.arange(0, 32)[None, :]
    there = group < groups
    if PLANES == 2:
        high = (number + 128) >> 8
        low = tl.maximum(number - high * 256, -127)
        number = high * 256 + low
        tl.store(numbers + at, high.to(tl.int8), mask=there[:, None])
        tl.store(numbers + plane + at, low.to(tl.int8), mask=there[:, None])
    else:
        tl.store(numbers + at, number.to(tl.int8), mask=there[:, None])
    tl.store(scales + group * rows + row, scale, mask=there)
    total = tl.sum(number, axis=1)
    second = tl.sum(tl.where(tl.arange(0, 32)[None, :] >= 16, number, 0), axis=1)
    at = sums + group * 3 * rows + row
    tl.store(at, scale * total.to(tl.float32), mask=there)
    tl.store(at + rows, scale * (total - second).to(tl.float32), mask=there)
    tl.store(at + 2 * rows, scale * second.to(tl.float32), mask=there)


def quantize(x: Tensor, planes: int) -> Quantized:
    """Float32 [rows, columns], its columns contiguous, as integers.

    The scale of a group with NaN or infinity is NaN.
    """
    rows, columns = x.shape
    groups = group_count(columns)
    numbers = torch.empty(planes, rows, groups, GROUP, dtype=torch.int8, device=x.device)
    scales = torch.empty(groups, rows, device=x.device)
    sums = torch.empty(groups, 3, rows, device=x.device)
    grid = rows, -(-groups // GROUPS_AT_ONCE)
    _quantize[grid](
        *(x, x.stride(0), numbers, rows * groups * GROUP, scales, sums, rows, columns, groups),
        PLANES=planes,
        AT_ONCE=GROUPS_AT_ONCE,
        **EXACT,
    )
    return Quantized(numbers, scales, sums)
