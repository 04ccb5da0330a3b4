"""The kernel of all products with weights: [outputs, inputs] times rows, of one matrix or of experts.

Its sums run in an order that the size of the matrix fixes: the inputs are cut into spans, each is summed in
ascending order, and then the spans' sums in theirs. Few rows leave most of a GPU without work, so each span
has a program of its own then, and the last one to end adds them; with many rows one program does it all.
The bits are the same. Packed weights meet rows of integers: dots are exact on any hardware, and what is
rounded is what docs/numerics.md says. Plain ones meet rows rounded to their own precision, or two such parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..formats import group_count
from . import interpreted
from .activations import Quantized
from .arithmetic import EXACT
from .decode import constants, offsets
from .matrix import TILE, Block, span_of
from .spans import packed_span, plain_span

ROW_TILES = (16, 32, 64)
"""Rows that a program may take."""

INPUTS_AT_ONCE = 64
"""Inputs of a plain matrix that are taken at a time."""

GROUPS_AT_ONCE = 4
"""Groups of a packed matrix that are taken at a time; divides the groups of a span."""


@triton.jit
def _product(
    x, stride, x_scales, x_sums, plane, x_rows, data, table, tile_experts, order, share,
    bias, out, width, partial, locks, rows, start, outputs, inputs, groups, span, spans,
    codes, codes_high, scales, scales_high, units, minima, minima_high, minima_units,
    PLAIN: tl.constexpr, EXPERTS: tl.constexpr, APART: tl.constexpr, BIAS: tl.constexpr,
    STORED: tl.constexpr, DOT: tl.constexpr, DROP: tl.constexpr,
    BITS: tl.constexpr, LOW: tl.constexpr, TABLE: tl.constexpr, TABLE_LOW: tl.constexpr,
    TABLE_HIGH: tl.constexpr, COLUMNS: tl.constexpr, MINIMA: tl.constexpr, SCALES: tl.constexpr,
    SCALE_BITS: tl.constexpr, SCALE_LOW: tl.constexpr, UNIT: tl.constexpr,
    FUSED: tl.constexpr, PLANES: tl.constexpr,
    OUTPUTS: tl.constexpr, ROWS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """A tile of outputs and rows; APART: one span of it."""
    n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    there = n < outputs
    m = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    if EXPERTS:
        expert = tl.load(tile_experts + tl.program_id(2))
        if expert < 0:
            return
        address = tl.load(table + expert)
        if address == 0:
            return
        data = tl.multiple_of(address.to(tl.pointer_type(tl.uint8)), 16)
        m = tl.load(order + m)
        inside = m >= 0
        x_row = tl.where(inside, m // share, 0)
        bias += expert.to(tl.int64) * width
    else:
        inside = m < rows
        x_row = m
    x_row = x_row.to(tl.int64)
    total = tl.zeros((OUTPUTS, ROWS), tl.float32)
    first_span = tl.program_id(1) if APART else 0
    end_span = first_span + 1 if APART else spans
    for i in range(first_span, end_span):
        first = i * span
        if PLAIN:
            last = tl.minimum(first + span, inputs)
            acc = plain_span(
                *(x, stride, x_row, inside, data, n, there, inputs, first, last),
                *(STORED, DOT, DROP, PLANES, OUTPUTS, ROWS, AT_ONCE),
            )
        else:
            last = tl.minimum(first + span, groups)
            acc = packed_span(
                *(x, x_scales, x_sums, plane, x_rows, x_row, inside, groups),
                *(data, n, there, outputs, first, last),
                *(codes, codes_high, scales, scales_high, units, minima, minima_high, minima_units),
                *(BITS, LOW, TABLE, TABLE_LOW, TABLE_HIGH, COLUMNS, MINIMA),
                *(SCALES, SCALE_BITS, SCALE_LOW, UNIT),
                *(FUSED, PLANES, OUTPUTS, ROWS, AT_ONCE),
            )
        total += acc
    if APART:
        own = n.to(tl.int64)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
        size = tl.zeros((), tl.int64) + outputs * ROWS
        tl.store(partial + first_span * size + own, total, mask=there[:, None])
        tl.debug_barrier()
        lock = locks + tl.program_id(0)
        if tl.atomic_add(lock, 1) < spans - 1:
            return
        tl.store(lock, 0)
        tl.debug_barrier()
        total = tl.zeros((OUTPUTS, ROWS), tl.float32)
        for i in range(spans):
            total += tl.load(partial + i * size + own, mask=there[:, None], other=0.0)
    if BIAS:
        total += tl.load(bias + start + n, mask=there, other=0.0)[:, None]
    at = m.to(tl.int64)[None, :] * width + (start + n)[:, None]
    tl.store(out + at, total, mask=there[:, None] & inside[None, :])


class Chosen(NamedTuple):
    """Rows of experts. table: int64 [experts], addresses of their blocks, 0 for those that have none like it.
    order: int32, numbers of results by expert, each one's filled up with -1 to whole tiles of `tile` rows.
    tiles: int32, whose a tile is, -1 for none. share: results of each row of x.
    """

    table: Tensor
    order: Tensor
    tiles: Tensor
    tile: int
    share: int


_PLAIN = {"bf16": (tl.bfloat16, 16), "f16": (tl.float16, 13), "f32": (tl.float32, 0)}
"""Types of plain formats, and how many bits a row's values lose beside them."""


def _plain_constants(format: str) -> dict[str, Any]:
    stored, drop = _PLAIN[format]
    # Half precision stands in tf32 without loss, which has the range that activations need.
    dot = tl.bfloat16 if format == "bf16" and not interpreted() else tl.float32
    return {"STORED": stored, "DOT": dot, "DROP": drop, "AT_ONCE": INPUTS_AT_ONCE}


_NOT_PLAIN = {"STORED": tl.float32, "DOT": tl.float32, "DROP": 0, "AT_ONCE": GROUPS_AT_ONCE}
_NOT_PACKED = {**constants("q8"), "FUSED": True}


def multiply(
    x: Tensor | Quantized,
    block: Block,
    out: Tensor,
    bias: Tensor | None,
    planes: int,
    chosen: Chosen | None = None,
) -> None:
    """Fill a block's columns of out [rows, all outputs] with products of the rows of x.

    x: float32 [rows, inputs], its columns contiguous, for a plain block, else quantized. bias: float32
    [all outputs], or of each expert.
    """
    outputs, inputs, device = block.outputs, block.inputs, block.data.device
    span = span_of(outputs, inputs)
    spans = -(-inputs // span)
    rows, width = out.shape
    groups = group_count(inputs)
    if isinstance(x, Quantized):
        values, x_scales, x_sums = x.numbers, x.scales, x.sums
        x_rows, stride = x.numbers.shape[1], 0
        kind = {**constants(block.format), "FUSED": block.format not in ("q4", "q8"), **_NOT_PLAIN}
        places = offsets(block.format, outputs, inputs)
        span //= 32
    else:
        values, x_scales, x_sums = x, x, x
        x_rows, stride = len(x), x.stride(0)
        kind = {**_NOT_PACKED, **_plain_constants(block.format)}
        places = (0,) * 8
    if chosen is None:
        tile = next((size for size in ROW_TILES if rows <= size), ROW_TILES[-1])
        tiles, share = -(-rows // tile), 1
        table = order = experts = block.locks
    else:
        tile, tiles, share = chosen.tile, len(chosen.tiles), chosen.share
        table, order, experts = chosen.table, chosen.order, chosen.tiles
    apart = chosen is None and tiles == 1 and spans > 1
    partial = torch.empty(spans * outputs * tile if apart else 1, device=device)
    _product[(-(-outputs // TILE), spans if apart else 1, tiles)](
        *(values, stride, x_scales, x_sums, x_rows * groups * 32, x_rows),
        *(block.data, table, experts, order, share),
        *(out if bias is None else bias, out, width, partial, block.locks),
        *(rows, block.start, outputs, inputs, groups, span, spans),
        *places,
        PLAIN=block.plain,
        EXPERTS=chosen is not None,
        APART=apart,
        BIAS=bias is not None,
        PLANES=planes,
        OUTPUTS=TILE,
        ROWS=tile,
        **kind,
        **EXACT,
    )
