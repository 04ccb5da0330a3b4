"""From the codes of a packed matrix to integers, scales and minima, inside a kernel: functions for all
formats of the table, that are compiled for the one they are called with.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ..formats import FORMATS, SCALES, TABLES
from .layout import layout

_TO_UE4M3 = tl.constexpr(2.0**119)
"""What makes of the exponent of a float8 in the field of a float32 its own."""


def constants(format: str) -> dict[str, Any]:
    """What a kernel that decodes a format is compiled with."""
    form = FORMATS[format]
    kind = SCALES[form.scales]
    table = [code & 255 for code in TABLES[form.table]] if form.table else [0] * 16
    return {
        "BITS": form.bits,
        "LOW": form.low,
        "TABLE": bool(form.table),
        "TABLE_LOW": int.from_bytes(bytes(table[:8]), "little"),
        "TABLE_HIGH": int.from_bytes(bytes(table[8:]), "little"),
        "COLUMNS": form.group,
        "MINIMA": form.minima,
        "SCALES": form.scales,
        "SCALE_BITS": kind.bits,
        "SCALE_LOW": kind.low,
        "UNIT": kind.block // form.group,
    }


def offsets(format: str, outputs: int, inputs: int) -> tuple[int, ...]:
    """Where the parts of a buffer begin, in the order in which kernels take them."""
    return layout(format, outputs, inputs)[:-1]


@triton.jit
def _fields(plane, group, n, outputs, there, BITS: tl.constexpr):
    """Codes of a plane, uint8 [outputs of n, 32]."""
    nbytes: tl.constexpr = 4 * BITS
    first = plane + group.to(tl.int64) * outputs * nbytes
    at = n[:, None] * nbytes + tl.arange(0, nbytes)[None, :]
    packed = tl.load(first + at, mask=there[:, None], other=0)
    codes = packed
    # Joined, neighbouring columns are in neighbouring registers, and go on from there together.
    if BITS == 4:
        codes = tl.reshape(tl.join(packed & 15, packed >> 4), (n.shape[0], 32))
    elif BITS == 2:
        even = tl.join(packed & 3, (packed >> 4) & 3)
        codes = tl.reshape(tl.join(even, tl.join((packed >> 2) & 3, packed >> 6)), (n.shape[0], 32))
    elif BITS == 1:
        lower = tl.join(tl.join(packed & 1, (packed >> 4) & 1), tl.join((packed >> 2) & 1, (packed >> 6) & 1))
        odd = packed >> 1
        upper = tl.join(tl.join(odd & 1, (odd >> 4) & 1), tl.join((odd >> 2) & 1, (odd >> 6) & 1))
        codes = tl.reshape(tl.join(lower, upper), (n.shape[0], 32))
    return codes


@triton.jit
def integers(
    low, high, group, n, outputs, there,
    BITS: tl.constexpr, LOW: tl.constexpr, TABLE: tl.constexpr, TABLE_LOW: tl.constexpr,
    TABLE_HIGH: tl.constexpr,
):  # fmt: skip
    """What the codes of a group stand for, int8 [outputs of n, 32]; 0 where no output is there."""
    if BITS == 6:
        codes = _fields(low, group, n, outputs, there, 4) | _fields(high, group, n, outputs, there, 2) << 4
    elif BITS == 5:
        codes = _fields(low, group, n, outputs, there, 4) | _fields(high, group, n, outputs, there, 1) << 4
    elif BITS == 3:
        codes = _fields(low, group, n, outputs, there, 2) | _fields(high, group, n, outputs, there, 1) << 2
    else:
        codes = _fields(low, group, n, outputs, there, BITS)
    if TABLE:
        words = tl.where(codes < 8, tl.full((), TABLE_LOW, tl.uint64), tl.full((), TABLE_HIGH, tl.uint64))
        codes = ((words >> ((codes & 7) * 8).to(tl.uint64)) & 255).to(tl.uint8)
    numbers = codes.to(tl.int8, bitcast=True)
    if BITS < 8 and not TABLE:
        numbers = numbers + LOW
    return numbers


@triton.jit
def _number(plane, i, n, outputs, there, BITS: tl.constexpr):
    """Number i of each output, int32: it stands in byte i * BITS / 8."""
    row = ((i * BITS) >> 3).to(tl.int64)
    packed = tl.load(plane + row * outputs + n, mask=there, other=0).to(tl.int32)
    return (packed >> ((i * BITS) & 7)) & ((1 << BITS) - 1)


@triton.jit
def scale(
    low, high, units, i, n, outputs, there,
    SCALES: tl.constexpr, SCALE_BITS: tl.constexpr, SCALE_LOW: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Scale (or minimum) i of each output, float32; 0 where no output is there. UNIT: how many are multiples
    of the same float16.
    """
    if SCALES == "f16":
        at = low.to(tl.pointer_type(tl.float16)) + i.to(tl.int64) * outputs + n
        value = tl.load(at, mask=there, other=0.0).to(tl.float32)
    elif SCALES == "f32":
        at = low.to(tl.pointer_type(tl.float32)) + i.to(tl.int64) * outputs + n
        value = tl.load(at, mask=there, other=0.0)
    elif SCALES == "e8m0":
        number = _number(low, i, n, outputs, there, 8)
        # Below 2 the power of two is subnormal.
        bits = tl.where(number >= 2, (number - 1) << 23, 0x200000 << number)
        value = tl.where(there, bits.to(tl.float32, bitcast=True), 0.0)
    elif SCALES == "ue4m3":
        number = _number(low, i, n, outputs, there, 8)
        value = (number << 20).to(tl.float32, bitcast=True) * _TO_UE4M3
    else:
        if SCALE_BITS == 6:
            number = _number(low, i, n, outputs, there, 4) | _number(high, i, n, outputs, there, 2) << 4
        else:
            number = _number(low, i, n, outputs, there, SCALE_BITS)
        at = units.to(tl.pointer_type(tl.float16)) + (i // UNIT).to(tl.int64) * outputs + n
        unit = tl.load(at, mask=there, other=0.0).to(tl.float32)
        value = (number + SCALE_LOW).to(tl.float32) * unit
    return value
