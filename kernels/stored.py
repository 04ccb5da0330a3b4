"""Blocks of a file -> canonical weights, in numpy: what the native backend does in C++, bit for bit.

Without loss and without a copy: F32, F16, BF16, Q4_1, Q8_0. Without loss: Q4_0 (its minimum is -8 scales) and
Q5_0 (its 5-bit codes fit in 8). With scales rounded to float16: Q4_K. All others are dequantized and packed
to q8.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .interface import Float32
from .quantize import Packer, quantize_rows, row_pieces
from .weights import BLOCKS, FORMATS, Canonical, Packed, Plain, Stored, Weight, dequantize

_LARGEST = float(np.finfo(np.float16).max)


def mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    """The mapped file that an array is a view of."""
    whole: Any = array
    while isinstance(whole, np.ndarray):
        whole = whole.base
    mapped = whole.obj if isinstance(whole, memoryview) else whole
    return mapped if isinstance(mapped, mmap.mmap) else None


def release(data: NDArray[np.uint8]) -> None:
    """Let go of the mapped file's pages that hold nothing but this; reading it brings them back."""
    mapped = mapping_of(data)
    if mapped is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    offset = data.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (offset + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
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


def _q4_0(stored: Stored) -> Packed | None:
    blocks = _blocks(stored)
    scales = _f16(blocks, 0)
    with np.errstate(all="ignore"):  # a broken scale shows up as a value that is not finite
        minima = scales * np.float16(-8)
    if not np.isfinite(minima).all():
        return None
    return Packed("q4", stored.shape, blocks[..., 2:], scales, minima)


def _q4_1(stored: Stored) -> Packed:
    blocks = _blocks(stored)
    return Packed("q4", stored.shape, blocks[..., 4:], _f16(blocks, 0), _f16(blocks, 2))


def _q8_0(stored: Stored) -> Packed:
    blocks = _blocks(stored)
    return Packed("q8", stored.shape, blocks[..., 2:].view(np.int8), _f16(blocks, 0))


def _q5_0(stored: Stored) -> Packed:
    """Value = (code - 16) * scale; the fifth bits of 32 codes lie together in 4 bytes."""
    blocks = _blocks(stored)
    codes = np.empty((*blocks.shape[:2], 32), np.int8)
    for here in row_pieces(*stored.shape):
        fifth = np.unpackbits(blocks[here, :, 2:6], axis=-1, bitorder="little")
        nibbles = blocks[here, :, 6:]
        low = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
        codes[here] = (low | fifth << 4).view(np.int8) - 16
    return Packed("q8", stored.shape, codes, _f16(blocks, 0))


def _six_bits(packed: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Scales and minima [..., 8] of a Q4_K block from its 12 bytes (get_scale_min_k4 in ggml-quants.c)."""
    first, second, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, (high & 15) | (first >> 6 << 4)], axis=-1)
    minima = np.concatenate([second & 63, (high >> 4) | (second >> 6 << 4)], axis=-1)
    return scales, minima


def _q4_k(stored: Stored) -> Packed | None:
    """Value = scale * 6-bit scale * code - minimum * 6-bit minimum, in 8 groups of 32 a block."""
    blocks = _blocks(stored)
    rows, columns = stored.shape
    groups = columns // 32
    codes = np.empty((rows, groups, 16), np.uint8)
    scales, minima = np.empty((rows, groups), np.float32), np.empty((rows, groups), np.float32)
    for here in row_pieces(rows, columns):
        piece = blocks[here]
        scale, minimum = _six_bits(piece[..., 4:16])
        scales[here] = (scale * _f16(piece, 0).astype(np.float32)[..., None]).reshape(-1, groups)
        minima[here] = (minimum * -_f16(piece, 2).astype(np.float32)[..., None]).reshape(-1, groups)
        nibbles = piece[..., 16:].reshape(-1, groups // 2, 32)
        low, high = nibbles & 15, nibbles >> 4
        pair = np.stack([low, high], axis=2).reshape(-1, groups, 32)
        codes[here] = pair[..., :16] | pair[..., 16:] << 4
    if not (np.abs(scales) <= _LARGEST).all() or not (np.abs(minima) <= _LARGEST).all():
        return None
    return Packed("q4", (rows, columns), codes, scales.astype(np.float16), minima.astype(np.float16))


_Pack = Callable[[Stored], Packed | None]
_VIEWS: dict[str, _Pack] = {"Q4_1": _q4_1, "Q8_0": _q8_0}
_EXACT: dict[str, _Pack] = {**_VIEWS, "Q4_0": _q4_0, "Q5_0": _q5_0}
_PACKERS: dict[str, _Pack] = {**_EXACT, "Q4_K": _q4_k}
"""None: beyond float16, so it takes the way of all other types."""


def read_rows(stored: Stored, rows: slice) -> Float32:
    """Rows as the float32 values they stand for, [rows, columns]."""
    data = stored.data[rows]
    shape = len(data), stored.shape[1]
    if not FORMATS[stored.format].packed:
        return dequantize(plain_view(stored.type, data, shape))
    if stored.type in _EXACT:
        packed = _EXACT[stored.type](Stored(stored.type, shape, data, stored.name))
        if packed is not None:
            return dequantize(packed)
    from gguf import GGMLQuantizationType, quants  # takes longer to import than most models to open

    with np.errstate(all="ignore"):  # a broken scale shows up as a value that is not finite
        result: Float32 = quants.dequantize(data, GGMLQuantizationType[stored.type])
    return result


def view(stored: Stored) -> Canonical | None:
    """The matrix in its format without a copy, None for a type that does not stand in the file like that."""
    if not FORMATS[stored.format].packed:
        return plain_view(stored.type, stored.data, stored.shape)
    return _VIEWS[stored.type](stored) if stored.type in _VIEWS else None


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
    packer = _PACKERS.get(weight.type)
    result = packer(weight) if packer else None
    if result is None:
        result = quantized(weight, "q8")
    if not np.may_share_memory(result.codes, weight.data):
        release(weight.data)
    return result
