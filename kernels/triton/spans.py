"""A span of a product, inside a kernel: its inputs are added up in ascending order.

Packed weights meet rows of integers, plain ones rows of float32 values that are rounded here.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .arithmetic import rounded
from .decode import integers, scale


@triton.jit
def _plus(a, b, c, FUSED: tl.constexpr):
    """The sum c + a * b. The first formats came without fused products, and keep their bits."""
    return tl.fma(a, b, c) if FUSED else c + a * b


@triton.jit
def packed_span(
    numbers, x_scales, x_sums, plane, columns, x_row, inside, groups,
    data, n, there, outputs, first, last,
    codes, codes_high, scales, scales_high, units, minima, minima_high, minima_units,
    BITS: tl.constexpr, LOW: tl.constexpr, TABLE: tl.constexpr, TABLE_LOW: tl.constexpr,
    TABLE_HIGH: tl.constexpr, COLUMNS: tl.constexpr, MINIMA: tl.constexpr, SCALES: tl.constexpr,
    SCALE_BITS: tl.constexpr, SCALE_LOW: tl.constexpr, UNIT: tl.constexpr,
    FUSED: tl.constexpr, PLANES: tl.constexpr,
    OUTPUTS: tl.constexpr, ROWS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Sums of the groups first to last, float32 [OUTPUTS, ROWS], by the section Products of the numerics."""
    acc = tl.zeros((OUTPUTS, ROWS), tl.float32)
    k = tl.arange(0, 32)
    for begin in range(first, last, AT_ONCE):
        for i in tl.static_range(AT_ONCE):
            group = begin + i
            live = there & (n * 0 + group < last)
            used = inside & (x_row * 0 + group < last)
            w = integers(
                *(data + codes, data + codes_high, group, n, outputs, live),
                *(BITS, LOW, TABLE, TABLE_LOW, TABLE_HIGH),
            )
            at = numbers + (x_row * groups + group)[None, :] * 32 + k[:, None]
            x = tl.load(at, mask=used[None, :], other=0)
            factor = tl.load(x_scales + group * columns + x_row, mask=used, other=0.0)
            if PLANES == 2:
                x_low = tl.load(at + plane, mask=used[None, :], other=0)
            if COLUMNS >= 32:
                dot = tl.dot(w, x, out_dtype=tl.int32)
                if PLANES == 2:
                    dot = dot * 256 + tl.dot(w, x_low, out_dtype=tl.int32)
                number = group * 32 // COLUMNS
                s = scale(
                    *(data + scales, data + scales_high, data + units, number, n, outputs, live),
                    *(SCALES, SCALE_BITS, SCALE_LOW, UNIT),
                )
                acc = _plus(dot.to(tl.float32) * s[:, None], factor[None, :], acc, FUSED)
                if MINIMA:
                    m = scale(
                        *(data + minima, data + minima_high, data + minima_units, number, n, outputs, live),
                        *(SCALES, SCALE_BITS, SCALE_LOW, UNIT),
                    )
                    total = tl.load(x_sums + (group * 3) * columns + x_row, mask=used, other=0.0)
                    acc = _plus(m[:, None], total[None, :], acc, FUSED)
            else:
                is_first = (k < 16)[:, None]
                dot = tl.dot(w, tl.where(is_first, x, 0), out_dtype=tl.int32)
                dot_2 = tl.dot(w, tl.where(is_first, 0, x), out_dtype=tl.int32)
                if PLANES == 2:
                    dot = dot * 256 + tl.dot(w, tl.where(is_first, x_low, 0), out_dtype=tl.int32)
                    dot_2 = dot_2 * 256 + tl.dot(w, tl.where(is_first, 0, x_low), out_dtype=tl.int32)
                s = scale(
                    *(data + scales, data + scales_high, data + units, group * 2, n, outputs, live),
                    *(SCALES, SCALE_BITS, SCALE_LOW, UNIT),
                )
                s_2 = scale(
                    *(data + scales, data + scales_high, data + units, group * 2 + 1, n, outputs, live),
                    *(SCALES, SCALE_BITS, SCALE_LOW, UNIT),
                )
                both = _plus(dot_2.to(tl.float32), s_2[:, None], dot.to(tl.float32) * s[:, None], FUSED)
                acc = _plus(both, factor[None, :], acc, FUSED)
                if MINIMA:
                    for half in tl.static_range(2):
                        m = scale(
                            *(data + minima, data + minima_high, data + minima_units),
                            *(group * 2 + half, n, outputs, live),
                            *(SCALES, SCALE_BITS, SCALE_LOW, UNIT),
                        )
                        at_sum = x_sums + (group * 3 + 1 + half) * columns + x_row
                        total = tl.load(at_sum, mask=used, other=0.0)
                        acc = _plus(m[:, None], total[None, :], acc, FUSED)
    return acc


@triton.jit
def plain_span(
    x, stride, x_row, inside, data, n, there, inputs, first, last,
    STORED: tl.constexpr, DOT: tl.constexpr, DROP: tl.constexpr, PLANES: tl.constexpr,
    OUTPUTS: tl.constexpr, ROWS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Sums of the columns first to last, float32 [OUTPUTS, ROWS]."""
    acc = tl.zeros((OUTPUTS, ROWS), tl.float32)
    weights = data.to(tl.pointer_type(STORED)) + n.to(tl.int64)[:, None] * inputs
    values = x + x_row[None, :] * stride
    for begin in range(first, last, AT_ONCE):
        k = begin + tl.arange(0, AT_ONCE)
        w = tl.load(weights + k[None, :], mask=there[:, None] & (k < last)[None, :], other=0.0).to(DOT)
        value = tl.load(values + k[:, None], mask=inside[None, :] & (k < last)[:, None], other=0.0)
        if DROP == 0:
            acc = tl.dot(w, value, acc, input_precision="ieee")
        else:
            high = rounded(value, DROP)
            acc = tl.dot(w, high.to(DOT), acc, input_precision="tf32")
            if PLANES == 2:
                rest = rounded(value - high, DROP)
                acc = tl.dot(w, rest.to(DOT), acc, input_precision="tf32")
    return acc
