"""Blocks of the types that files hold, taken apart: codes, scales and minima (layouts as in ggml-common.h).

What the native backend's repacking reads in C++, in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Bytes, Float32


def f16(blocks: Bytes, offset: int) -> NDArray[np.float16]:
    """The float16 at a byte offset of every block, as a view where the file is aligned to two bytes."""
    halves: NDArray[np.float16] = blocks[..., offset : offset + 2].view("<f2")[..., 0]
    return np.require(halves, requirements="A")


def _f32(blocks: Bytes, offset: int) -> Float32:
    """The same as [..., 1] in float32, whose products with small integers are exact."""
    return f16(blocks, offset).astype(np.float32)[..., None]


def _fields(data: Bytes, bits: int, run: int) -> Bytes:
    """Numbers of a few bits, in bytes that hold a run of first ones, then of second ones, and so on."""
    runs = data.reshape(*data.shape[:-1], -1, 1, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = (runs >> shifts) & np.uint8((1 << bits) - 1)
    return fields.reshape(*data.shape[:-1], -1)


def _fifth_bits(data: Bytes) -> Bytes:
    """16 for each bit of 4 bytes that is set."""
    return np.unpackbits(data, axis=-1, bitorder="little") << np.uint8(4)


def _six_bits(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Scales and minima [..., 8] of a Q4_K block from its 12 bytes (get_scale_min_k4 in ggml-quants.c)."""
    first, second, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, (high & 15) | (first >> 6 << 4)], axis=-1)
    minima = np.concatenate([second & 63, (high >> 4) | (second >> 6 << 4)], axis=-1)
    return scales, minima


class Parts(NamedTuple):
    """What blocks hold: codes [rows, blocks, values], scales and minima [rows, blocks, those of a block].

    units: float16 [rows, blocks], what scales are multiples of in types of super-blocks; minima_units,
    likewise.
    """

    codes: NDArray[Any]
    scales: NDArray[Any]
    minima: NDArray[Any] | None = None
    units: NDArray[np.float16] | None = None
    minima_units: NDArray[np.float16] | None = None


def _q4_0(b: Bytes) -> Parts:
    return Parts(_fields(b[..., 2:], 4, 16), f16(b, 0)[..., None])


def _q5_0(b: Bytes) -> Parts:
    return Parts(_fields(b[..., 6:], 4, 16) | _fifth_bits(b[..., 2:6]), f16(b, 0)[..., None])


def _q5_1(b: Bytes) -> Parts:
    codes = _fields(b[..., 8:], 4, 16) | _fifth_bits(b[..., 4:8])
    return Parts(codes, f16(b, 0)[..., None], f16(b, 2)[..., None])


def _q4_k(b: Bytes) -> Parts:
    scales, minima = _six_bits(b[..., 4:16])
    codes = _fields(b[..., 16:], 4, 32)
    return Parts(codes, _f32(b, 0) * scales, -_f32(b, 2) * minima, f16(b, 0), -f16(b, 2))


def _q5_k(b: Bytes) -> Parts:
    scales, minima = _six_bits(b[..., 4:16])
    codes = _fields(b[..., 48:], 4, 32) | _fields(b[..., 16:48], 1, 32) << np.uint8(4)
    return Parts(codes, _f32(b, 0) * scales, -_f32(b, 2) * minima, f16(b, 0), -f16(b, 2))


def _q6_k(b: Bytes) -> Parts:
    codes = _fields(b[..., :128], 4, 64) | _fields(b[..., 128:192], 2, 32) << np.uint8(4)
    return Parts(codes, _f32(b, 208) * b[..., 192:208].view(np.int8), units=f16(b, 208))


def _q3_k(b: Bytes) -> Parts:
    low, high = _fields(b[..., 96:104], 4, 8), _fields(b[..., 104:108], 2, 4)
    scales = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    codes = _fields(b[..., 32:96], 2, 32) | _fields(b[..., :32], 1, 32) << np.uint8(2)
    return Parts(codes, _f32(b, 108) * scales, units=f16(b, 108))


def _q2_k(b: Bytes) -> Parts:
    scales, minima = _f32(b, 80) * (b[..., :16] & 15), -_f32(b, 82) * (b[..., :16] >> 4)
    return Parts(_fields(b[..., 16:80], 2, 32), scales, minima, f16(b, 80), -f16(b, 82))


def _tq1_0(b: Bytes) -> Parts:
    """Five digits to the base 3 a byte, as the upper parts of a fraction."""

    def digits(data: Bytes, count: int) -> Bytes:
        powers = np.uint8(3) ** np.arange(count, dtype=np.uint8)[:, None]
        upper = (data[..., None, :] * powers).astype(np.uint16) * np.uint16(3) >> np.uint16(8)
        return upper.astype(np.uint8).reshape(*data.shape[:-1], -1)

    codes = [digits(b[..., :32], 5), digits(b[..., 32:48], 5), digits(b[..., 48:52], 4)]
    return Parts(np.concatenate(codes, axis=-1), f16(b, 52)[..., None])


def _tq2_0(b: Bytes) -> Parts:
    return Parts(_fields(b[..., :64], 2, 32), f16(b, 64)[..., None])


def _iq4_nl(b: Bytes) -> Parts:
    return Parts(_fields(b[..., 2:], 4, 16), f16(b, 0)[..., None])


def _iq4_xs(b: Bytes) -> Parts:
    low, high = _fields(b[..., 4:8], 4, 1), _fields(b[..., 2:4], 2, 1)
    scales = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    return Parts(_fields(b[..., 8:], 4, 16), _f32(b, 0) * scales, units=f16(b, 0))


def _mxfp4(b: Bytes) -> Parts:
    powers = np.ldexp(np.float32(1), b[..., :1].astype(np.int32) - 128)
    # What makes values beyond float32, and what OCP MX calls no number, is none here either.
    return Parts(_fields(b[..., 1:], 4, 16), np.where(b[..., :1] > 252, np.float32(np.nan), powers))


def _nvfp4(b: Bytes) -> Parts:
    """A scale has no sign here, and what would be NaN in OCP MX is 0 (ggml_ue4m3_to_fp32 in ggml-impl.h)."""
    numbers = np.where(b[..., :4] == 0x7F, np.uint8(0), b[..., :4] & 0x7F).astype(np.uint32)
    return Parts(_fields(b[..., 4:], 4, 8), (numbers << 20).view(np.float32) * np.float32(2.0**119))


READERS: Mapping[str, Callable[[Bytes], Parts]] = {
    "Q4_0": _q4_0,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q3_K": _q3_k,
    "Q2_K": _q2_k,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
}
"""By type. Each takes [rows, blocks, bytes of a block]."""
