"""Rows of a placed matrix by number, as float32 values."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..formats import group_count
from .arithmetic import EXACT
from .decode import constants, integers, offsets, scale
from .kernel import Draw, Kernel, Trial, called_with
from .matrix import Matrix, place, read
from .trials import stored, weight

TOKENS = 16
"""Rows that a program reads, 32 columns of each."""


@triton.jit
def _embed(
    tokens, data, out, count, width, start, outputs,
    codes, codes_high, scales, scales_high, units, minima, minima_high, minima_units,
    BITS: tl.constexpr, LOW: tl.constexpr, TABLE: tl.constexpr, TABLE_LOW: tl.constexpr,
    TABLE_HIGH: tl.constexpr, COLUMNS: tl.constexpr, MINIMA: tl.constexpr, SCALES: tl.constexpr,
    SCALE_BITS: tl.constexpr, SCALE_LOW: tl.constexpr, UNIT: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    n = tl.load(tokens + i, mask=i < count, other=-1) - start
    there = (i < count) & (n >= 0) & (n < outputs)
    group = tl.program_id(1)
    k = tl.arange(0, 32)
    number = integers(
        data + codes, data + codes_high, group, n, outputs, there, BITS, LOW, TABLE, TABLE_LOW, TABLE_HIGH
    ).to(tl.float32)
    for part in tl.static_range(1 if COLUMNS >= 32 else 2):
        run = group * 32 // COLUMNS + part
        s = scale(
            data + scales, data + scales_high, data + units, run, n, outputs, there,
            SCALES, SCALE_BITS, SCALE_LOW, UNIT,
        )  # fmt: skip
        value = number * s[:, None]
        if MINIMA:
            m = scale(
                data + minima, data + minima_high, data + minima_units, run, n, outputs, there,
                SCALES, SCALE_BITS, SCALE_LOW, UNIT,
            )  # fmt: skip
            value = value + m[:, None]
        held = group * 32 + k < width
        if COLUMNS < 32:
            held = held & (k >= part * 16) & (k < part * 16 + 16)
        at = out + i.to(tl.int64)[:, None] * width + (group * 32 + k)[None, :]
        tl.store(at, value, mask=there[:, None] & held[None, :])


def embedding(table: Matrix, tokens: Tensor) -> Tensor:
    """Rows of a matrix by number, int32 [rows] -> float32 [rows, inputs]."""
    first = table.blocks[0]
    if first.plain and len(table.blocks) == 1:
        return first.values.index_select(0, tokens).float()
    rows, width = len(tokens), table.shape[1]
    out = torch.empty(rows, width, device=table.device)
    for block in table.blocks if rows else ():
        if block.plain:
            local = tokens.long() - block.start
            here = (local >= 0) & (local < block.outputs)
            out = torch.where(here[:, None], block.read(local.clamp(0, block.outputs - 1)), out)
            continue
        _embed[-(-rows // TOKENS), group_count(width)](
            tokens, block.data, out, rows, width, block.start, block.outputs,
            *offsets(block.format, block.outputs, width),
            TOKENS=TOKENS,
            **constants(block.format),
            **EXACT,
        )  # fmt: skip
    return out


def _trials(draw: Draw) -> Iterator[Trial]:
    """Three ways to decode, and a matrix of blocks."""
    q2, q6 = (stored(type, 9, draw.generator, 1) for type in ("Q2_K", "Q6_K"))
    for parts in ((q2, q6), (weight("nf4", (19, 72), draw), weight("f16", (5, 72), draw))):
        matrix = place(parts, draw.device)
        yield called_with(matrix, draw.integers(0, matrix.shape[0], 19))


KERNEL = Kernel("embedding", embedding, read, _trials)
