"""Blocks of a file -> canonical weights, in numpy: what the native backend does in C++, bit for bit.

Without loss and without a copy: F32, F16, BF16, Q4_1, Q8_0. Without loss, as integers and the scales that
they are multiplied with: the other types of a format of their own. All others are dequantized and packed to
q8.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .interface import Float32
from .quantize import Packer, quantize_rows, row_pieces
from .weights import BLOCKS, FORMATS, GROUP, TABLES, Canonical, Packed, Plain, Stored, Weight, dequantize

UInt8 = NDArray[np.uint8]


def mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    """The mapped file that an array is a view of."""
    whole: Any = array
    while isinstance(whole, np.ndarray):
        whole = whole.base
    mapped = whole.obj if isinstance(whole, memoryview) else whole
    return mapped if isinstance(mapped, mmap.mmap) else None


def release(data: NDArray[np.uint8]) -> None:
    """Let go of the mapped file's pages from its first to its last byte; reading them brings them back."""
    mapped = mapping_of(data)
    if mapped is None or not hasattr(mmap, "MADV_DONTNEED") or data.size == 0:
        return
    nbytes = 1 + sum((n - 1) * stride for n, stride in zip(data.shape, data.strides, strict=True))
    offset = data.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (offset + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if start < stop:
        mapped.madvise(mmap.MADV_DONTNEED, start, stop - start)


def plain_view(type: str, data: NDArray[np.uint8], shape: tuple[int, ...]) -> Plain:
    """Values of a plain type as they are."""
    format = BLOCKS[type].format
    values = data.view(np.dtype(FORMATS[format].dtype).newbyteorder("<")).reshape(shape)
    # A file may put its data at any address; arithmetic libraries count on multiples of the value's size.
    return Plain(np.require(values, requirements="A"), format)


def _blocks(stored: Stored) -> NDArray[np.uint8]:
    """The bytes as [rows, blocks, bytes of a block]."""
    return stored.data.reshape(stored.shape[0], -1, BLOCKS[stored.type].nbytes)


def _f16(blocks: NDArray[np.uint8], offset: int) -> NDArray[np.float16]:
    """The float16 at a byte offset of every block, as a view where the file is aligned to two bytes."""
    halves: NDArray[np.float16] = blocks[..., offset : offset + 2].view("<f2")[..., 0]
    return np.require(halves, requirements="A")


def _f32(blocks: UInt8, offset: int) -> Float32:
    """The same as [..., 1] in float32, whose products with small integers are exact."""
    return _f16(blocks, offset).astype(np.float32)[..., None]


def _fields(data: UInt8, bits: int, run: int) -> UInt8:
    """Numbers of a few bits, in bytes that hold a run of first ones, then of second ones, and so on."""
    runs = data.reshape(*data.shape[:-1], -1, 1, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = (runs >> shifts) & np.uint8((1 << bits) - 1)
    return fields.reshape(*data.shape[:-1], -1)


def _fifth_bits(data: UInt8) -> UInt8:
    """16 for each bit of 4 bytes that is set."""
    return np.unpackbits(data, axis=-1, bitorder="little") << np.uint8(4)


def _six_bits(packed: UInt8) -> tuple[UInt8, UInt8]:
    """Scales and minima [..., 8] of a Q4_K block from its 12 bytes (get_scale_min_k4 in ggml-quants.c)."""
    first, second, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, (high & 15) | (first >> 6 << 4)], axis=-1)
    minima = np.concatenate([second & 63, (high >> 4) | (second >> 6 << 4)], axis=-1)
    return scales, minima


class _Parts(NamedTuple):
    """Of blocks: codes [rows, blocks, values], scales and minima [rows, blocks, those of a block]."""

    codes: NDArray[Any]
    scales: NDArray[Any]
    minima: NDArray[Any] | None = None


def _q4_0(b: UInt8) -> _Parts:
    return _Parts(_fields(b[..., 2:], 4, 16), _f16(b, 0)[..., None])


def _q5_0(b: UInt8) -> _Parts:
    return _Parts(_fields(b[..., 6:], 4, 16) | _fifth_bits(b[..., 2:6]), _f16(b, 0)[..., None])


def _q5_1(b: UInt8) -> _Parts:
    codes = _fields(b[..., 8:], 4, 16) | _fifth_bits(b[..., 4:8])
    return _Parts(codes, _f16(b, 0)[..., None], _f16(b, 2)[..., None])


def _q4_k(b: UInt8) -> _Parts:
    scales, minima = _six_bits(b[..., 4:16])
    return _Parts(_fields(b[..., 16:], 4, 32), _f32(b, 0) * scales, -_f32(b, 2) * minima)


def _q5_k(b: UInt8) -> _Parts:
    scales, minima = _six_bits(b[..., 4:16])
    codes = _fields(b[..., 48:], 4, 32) | _fields(b[..., 16:48], 1, 32) << np.uint8(4)
    return _Parts(codes, _f32(b, 0) * scales, -_f32(b, 2) * minima)


def _q6_k(b: UInt8) -> _Parts:
    codes = _fields(b[..., :128], 4, 64) | _fields(b[..., 128:192], 2, 32) << np.uint8(4)
    return _Parts(codes, _f32(b, 208) * b[..., 192:208].view(np.int8))


def _q3_k(b: UInt8) -> _Parts:
    low, high = _fields(b[..., 96:104], 4, 8), _fields(b[..., 104:108], 2, 4)
    scales = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    codes = _fields(b[..., 32:96], 2, 32) | _fields(b[..., :32], 1, 32) << np.uint8(2)
    return _Parts(codes, _f32(b, 108) * scales)


def _q2_k(b: UInt8) -> _Parts:
    return _Parts(
        _fields(b[..., 16:80], 2, 32), _f32(b, 80) * (b[..., :16] & 15), -_f32(b, 82) * (b[..., :16] >> 4)
    )


def _tq1_0(b: UInt8) -> _Parts:
    """Five digits to the base 3 a byte, as the upper parts of a fraction."""

    def digits(data: UInt8, count: int) -> UInt8:
        powers = np.uint8(3) ** np.arange(count, dtype=np.uint8)[:, None]
        upper = (data[..., None, :] * powers).astype(np.uint16) * np.uint16(3) >> np.uint16(8)
        return upper.astype(np.uint8).reshape(*data.shape[:-1], -1)

    codes = [digits(b[..., :32], 5), digits(b[..., 32:48], 5), digits(b[..., 48:52], 4)]
    return _Parts(np.concatenate(codes, axis=-1), _f16(b, 52)[..., None])


def _tq2_0(b: UInt8) -> _Parts:
    return _Parts(_fields(b[..., :64], 2, 32), _f16(b, 64)[..., None])


def _iq4_nl(b: UInt8) -> _Parts:
    return _Parts(_fields(b[..., 2:], 4, 16), _f16(b, 0)[..., None])


def _iq4_xs(b: UInt8) -> _Parts:
    low, high = _fields(b[..., 4:8], 4, 1), _fields(b[..., 2:4], 2, 1)
    scales = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    return _Parts(_fields(b[..., 8:], 4, 16), _f32(b, 0) * scales)


def _mxfp4(b: UInt8) -> _Parts:
    powers = np.ldexp(np.float32(1), b[..., :1].astype(np.int32) - 128)
    # What makes values beyond float32, and what OCP MX calls no number, is none here either.
    return _Parts(_fields(b[..., 1:], 4, 16), np.where(b[..., :1] > 252, np.float32(np.nan), powers))


def _nvfp4(b: UInt8) -> _Parts:
    """A scale has no sign here, and what would be NaN in OCP MX is 0 (ggml_ue4m3_to_fp32 in ggml-impl.h)."""
    numbers = np.where(b[..., :4] == 0x7F, np.uint8(0), b[..., :4] & 0x7F).astype(np.uint32)
    return _Parts(_fields(b[..., 4:], 4, 8), (numbers << 20).view(np.float32) * np.float32(2.0**119))


_READERS: dict[str, Callable[[UInt8], _Parts]] = {
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


def _q4_1(stored: Stored) -> Packed:
    blocks = _blocks(stored)
    return Packed("q4", stored.shape, blocks[..., 4:], _f16(blocks, 0), _f16(blocks, 2))


def _q8_0(stored: Stored) -> Packed:
    blocks = _blocks(stored)
    return Packed("q8", stored.shape, blocks[..., 2:].view(np.int8), _f16(blocks, 0))


_VIEWS = {"Q4_1": _q4_1, "Q8_0": _q8_0}


def _exact(stored: Stored) -> Packed:
    """Integers, and scales and minima as they are multiplied and added."""
    form, blocks = FORMATS[stored.format], _blocks(stored)
    rows, columns = stored.shape
    codes = np.empty((rows, columns // GROUP, GROUP), np.int8)
    scales = np.empty((rows, columns // form.group), form.scale_type)
    minima = np.empty_like(scales) if form.minima else None
    table = np.array(TABLES[form.table], np.int8) if form.table else None
    for here in row_pieces(rows, columns):
        with np.errstate(all="ignore"):  # a broken scale shows up as one that is not finite
            parts = _READERS[stored.type](blocks[here])
        integers = parts.codes.astype(np.int8) + np.int8(form.low) if table is None else table[parts.codes]
        codes[here] = integers.reshape(codes[here].shape)
        scales[here] = parts.scales.reshape(scales[here].shape)
        if minima is not None:
            assert parts.minima is not None
            minima[here] = parts.minima.reshape(minima[here].shape)
    return Packed(stored.format, stored.shape, codes, scales, minima)


QUANTIZED_ANEW = frozenset(BLOCKS) - {*_VIEWS, *_READERS, "F32", "F16", "BF16"}
"""Types without a format of their own."""


def check_finite(weight: Weight) -> None:
    """ValueError, naming it: scales or minima that are not finite."""
    if isinstance(weight, Plain):
        return
    name = weight.name
    if isinstance(weight, Stored):
        weight = _packed(weight)
    for numbers in (weight.scales, weight.minima):
        if numbers is not None and not np.isfinite(numbers).all():
            row = int(np.argmin(np.isfinite(numbers).all(axis=1)))
            raise ValueError(f"{name}: row {row} holds a value that is not finite")


def _packed(stored: Stored) -> Packed:
    """A type that has a format of its own."""
    return _VIEWS[stored.type](stored) if stored.type in _VIEWS else _exact(stored)


def read_rows(stored: Stored, rows: slice) -> Float32:
    """Rows as the float32 values they stand for, [rows, columns]."""
    data = stored.data[rows]
    shape = len(data), stored.shape[1]
    if not FORMATS[stored.format].packed:
        return dequantize(plain_view(stored.type, data, shape))
    if stored.type not in QUANTIZED_ANEW:
        with np.errstate(all="ignore"):
            return dequantize(_packed(Stored(stored.type, shape, data, stored.name)))
    from gguf import GGMLQuantizationType, quants  # takes longer to import than most models to open

    with np.errstate(all="ignore"):  # a broken scale shows up as a value that is not finite
        result: Float32 = quants.dequantize(data, GGMLQuantizationType[stored.type])
    return result


def view(stored: Stored) -> Canonical | None:
    """The matrix in its format without a copy, None for a type that does not stand in the file like that."""
    if not FORMATS[stored.format].packed:
        return plain_view(stored.type, stored.data, stored.shape)
    return None


def quantized(
    stored: Stored, format: str, packer: Packer | None = None, after: Callable[[int], None] | None = None
) -> Packed:
    """The matrix in a packed format. ValueError, naming it: values that can't be held.

    The pages of a mapped file are let go of piece by piece. after: called with the bytes that were read since
    it was called last; what it raises ends this.
    """

    def read(rows: slice) -> Plain:
        data = stored.data[rows]
        if FORMATS[stored.format].packed:
            piece = Plain(read_rows(stored, rows), "f32")
            release(data)
        else:
            piece = plain_view(stored.type, data, (len(data), stored.shape[1]))
            if rows.start:
                release(stored.data[: rows.start])
        if after is not None:
            after(data.nbytes)
        return piece

    try:
        return quantize_rows(stored.shape, format, read, packer)
    except ValueError as error:
        raise ValueError(f"{stored.name}: {error}") from None
    finally:
        release(stored.data)


def canonical(weight: Weight) -> Canonical:
    """A weight as arrays that can be computed with. ValueError, naming it: values that can't be held.

    The pages of a mapped file that were read for it and are needed no more are let go of.
    """
    if not isinstance(weight, Stored):
        return weight
    if not FORMATS[weight.format].packed:
        return plain_view(weight.type, weight.data, weight.shape)
    if weight.type in QUANTIZED_ANEW:
        result = quantized(weight, weight.format)
    else:
        result = _packed(weight)
        check_finite(weight)
    if not np.may_share_memory(result.codes, weight.data):
        release(weight.data)
    return result
