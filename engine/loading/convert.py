"""Stored tensors -> canonical weights.

Without loss and without a copy: F32, F16, BF16, Q4_1, Q8_0. Without loss: Q4_0 (its minimum is -8 scales) and
Q5_0 (its 5-bit codes fit in 8). With scales rounded to float16: Q4_K. All others are dequantized and packed
to q8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernels.dequantize import dequantize
from kernels.interface import Float32
from kernels.quantize import quantize_rows, row_pieces
from kernels.weights import FORMATS, Packed, Plain, Weight

from .stored import BLOCKS, StoredTensor

_PLAIN = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_LARGEST = float(np.finfo(np.float16).max)


def canonical_format(type: str) -> str:
    """The format `to_weight` gives this stored type (but q8 to a Q4_0 or Q4_K that exceeds float16)."""
    if type in _PLAIN:
        return _PLAIN[type]
    return "q4" if type in ("Q4_0", "Q4_1", "Q4_K") else "q8"


def _plain(tensor: StoredTensor) -> Plain:
    format = _PLAIN[tensor.type]
    values = tensor.data.view(np.dtype(FORMATS[format].dtype).newbyteorder("<")).reshape(tensor.shape)
    # A file may put its data at any address; arithmetic libraries count on multiples of the value's size.
    return Plain(np.require(values, requirements="A"), format)


def _blocks(tensor: StoredTensor) -> NDArray[np.uint8]:
    """The bytes as [rows, blocks, bytes of a block]."""
    values, width = BLOCKS[tensor.type]
    rows, columns = tensor.shape
    return tensor.data.reshape(rows, columns // values, width)


def _f16(blocks: NDArray[np.uint8], offset: int) -> NDArray[np.float16]:
    """The float16 at a byte offset of every block, as a view where the file is aligned to two bytes."""
    halves: NDArray[np.float16] = blocks[..., offset : offset + 2].view("<f2")[..., 0]
    return np.require(halves, requirements="A")


def _matrix(tensor: StoredTensor) -> tuple[int, int]:
    rows, columns = tensor.shape
    return rows, columns


def read_rows(tensor: StoredTensor, rows: slice) -> Float32:
    """Rows of a matrix of any type as the float32 values they stand for, [rows, columns]."""
    if tensor.type in _PLAIN:
        return dequantize(_plain(tensor), rows.start, rows.stop)
    data = tensor.data.reshape(tensor.shape[0], -1)[rows]
    if tensor.type in _EXACT:
        piece = StoredTensor(tensor.name, (len(data), tensor.shape[1]), tensor.type, data.reshape(-1))
        packed = _PACKERS[tensor.type](piece)
        if packed is not None:
            return dequantize(packed)
    from gguf import GGMLQuantizationType, quants  # takes longer to import than most models to open

    with np.errstate(all="ignore"):  # a broken scale shows up as a value that is not finite
        result: Float32 = quants.dequantize(data, GGMLQuantizationType[tensor.type])
    return result


def _q4_0(tensor: StoredTensor) -> Packed | None:
    blocks = _blocks(tensor)
    scales = _f16(blocks, 0)
    with np.errstate(all="ignore"):  # a broken scale shows up as a value that is not finite
        minima = scales * np.float16(-8)
    if not np.isfinite(minima).all():
        return None
    return Packed("q4", _matrix(tensor), blocks[..., 2:], scales, minima)


def _q4_1(tensor: StoredTensor) -> Packed:
    blocks = _blocks(tensor)
    return Packed("q4", _matrix(tensor), blocks[..., 4:], _f16(blocks, 0), _f16(blocks, 2))


def _q8_0(tensor: StoredTensor) -> Packed:
    blocks = _blocks(tensor)
    return Packed("q8", _matrix(tensor), blocks[..., 2:].view(np.int8), _f16(blocks, 0))


def _q5_0(tensor: StoredTensor) -> Packed:
    """Value = (code - 16) * scale; the fifth bits of 32 codes lie together in 4 bytes."""
    blocks = _blocks(tensor)
    codes = np.empty((*blocks.shape[:2], 32), np.int8)
    for here in row_pieces(*_matrix(tensor)):
        fifth = np.unpackbits(blocks[here, :, 2:6], axis=-1, bitorder="little")
        nibbles = blocks[here, :, 6:]
        low = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
        codes[here] = (low | fifth << 4).view(np.int8) - 16
    return Packed("q8", _matrix(tensor), codes, _f16(blocks, 0))


def _six_bits(packed: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Scales and minima [..., 8] of a Q4_K block from its 12 bytes (get_scale_min_k4 in ggml-quants.c)."""
    first, second, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, (high & 15) | (first >> 6 << 4)], axis=-1)
    minima = np.concatenate([second & 63, (high >> 4) | (second >> 6 << 4)], axis=-1)
    return scales, minima


def _q4_k(tensor: StoredTensor) -> Packed | None:
    """Value = scale * 6-bit scale * code - minimum * 6-bit minimum, in 8 groups of 32 a block."""
    blocks = _blocks(tensor)
    rows, columns = _matrix(tensor)
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


_PACKERS: dict[str, Callable[[StoredTensor], Packed | None]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
    "Q5_0": _q5_0,
    "Q8_0": _q8_0,
}
_EXACT = ("Q4_0", "Q4_1", "Q5_0", "Q8_0")


def to_packed(tensor: StoredTensor, format: str) -> Packed:
    """A matrix of any type in a packed format. ValueError: values that can't be held, with row and group."""
    return quantize_rows(_matrix(tensor), format, lambda rows: read_rows(tensor, rows))


def to_weight(tensor: StoredTensor) -> Weight:
    """A matrix in the format nearest to what is stored. ValueError: values that can't be held."""
    if tensor.type in _PLAIN:
        return _plain(tensor)
    packer = _PACKERS.get(tensor.type)
    packed = None if packer is None else packer(tensor)
    return to_packed(tensor, "q8") if packed is None else packed


def to_float32(tensor: StoredTensor) -> Plain:
    """A matrix of any type as the float32 values it stands for."""
    if tensor.type == "F32":
        return _plain(tensor)
    values = np.empty(tensor.shape, np.float32)
    for rows in row_pieces(*_matrix(tensor)):
        values[rows] = read_rows(tensor, rows)
    return Plain(values, "f32")


def to_vector(tensor: StoredTensor) -> Plain:
    """A one-dimensional tensor of any type as float32."""
    matrix = StoredTensor(tensor.name, (1, *tensor.shape), tensor.type, tensor.data)
    return Plain(to_float32(matrix).values[0], "f32")
