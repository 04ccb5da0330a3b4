"""Blocks of a file -> canonical weights, in numpy: what the native backend does in C++, bit for bit.

Without loss and without a copy: F32, F16, BF16, Q4_1, Q8_0. Without loss, as integers and the scales that
they are multiplied with: the other types of a format of their own. All others are dequantized and packed to
q8.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Float32
from .blocks import READERS, f16
from .formats import BLOCKS, FORMATS, GROUP, TABLES
from .quantize import Packer, quantize_rows, row_pieces
from .weights import Canonical, Packed, Plain, Stored, Weight, dequantize


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
        with suppress(OSError):  # it is advice: a system that takes none keeps the pages
            mapped.madvise(mmap.MADV_DONTNEED, start, stop - start)


def plain_view(type: str, data: NDArray[np.uint8], shape: tuple[int, ...], name: str = "") -> Plain:
    """Values of a plain type as they are. name: see `Plain`."""
    format = BLOCKS[type].format
    values = data.view(np.dtype(FORMATS[format].dtype).newbyteorder("<")).reshape(shape)
    # A file may put its data at any address; arithmetic libraries count on multiples of the value's size.
    return Plain(np.require(values, requirements="A"), format, name)


def _blocks(stored: Stored) -> NDArray[np.uint8]:
    """The bytes as [rows, blocks, bytes of a block]."""
    return stored.data.reshape(stored.shape[0], -1, BLOCKS[stored.type].nbytes)


def _q4_1(stored: Stored) -> Packed:
    blocks = _blocks(stored)
    return Packed("q4", stored.shape, blocks[..., 4:], f16(blocks, 0), f16(blocks, 2))


def _q8_0(stored: Stored) -> Packed:
    blocks = _blocks(stored)
    return Packed("q8", stored.shape, blocks[..., 2:].view(np.int8), f16(blocks, 0))


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
            parts = READERS[stored.type](blocks[here])
        integers = parts.codes.astype(np.int8) + np.int8(form.low) if table is None else table[parts.codes]
        codes[here] = integers.reshape(codes[here].shape)
        scales[here] = parts.scales.reshape(scales[here].shape)
        if minima is not None:
            assert parts.minima is not None
            minima[here] = parts.minima.reshape(minima[here].shape)
    return Packed(stored.format, stored.shape, codes, scales, minima)


QUANTIZED_ANEW = frozenset(BLOCKS) - {*_VIEWS, *READERS, "F32", "F16", "BF16"}
"""Types without a format of their own."""


def check_finite(weight: Weight) -> None:
    """ValueError, naming it: values, or scales or minima, that are not finite.

    Types without a format of their own are looked at when they are quantized.
    """
    if isinstance(weight, Stored):
        if weight.type in QUANTIZED_ANEW:
            return
        weight = view(weight) or _packed(weight)
    if isinstance(weight, Plain):
        for rows in row_pieces(*weight.shape) if weight.name else ():
            _check_rows(dequantize(Plain(weight.values[rows], weight.format)), weight.name, rows.start)
        return
    for numbers in (weight.scales, weight.minima):
        if numbers is not None:
            _check_rows(numbers, weight.name)


def _check_rows(numbers: NDArray[Any], name: str, first: int = 0) -> None:
    finite = np.isfinite(numbers)
    if not finite.all():
        row = first + int(np.argmin(finite.all(axis=1)))
        raise ValueError(f"{name}: row {row} holds a value that is not finite")


def _packed(stored: Stored) -> Packed:
    """A type that has a format of its own."""
    packed = _VIEWS[stored.type](stored) if stored.type in _VIEWS else _exact(stored)
    return replace(packed, name=stored.name, factor=stored.factor)


def read_rows(stored: Stored, rows: slice) -> Float32:
    """Rows as the float32 values they stand for, [rows, columns]."""
    data = stored.data[rows]
    shape = len(data), stored.shape[1]
    if not FORMATS[stored.format].packed:
        return dequantize(plain_view(stored.type, data, shape))
    if stored.type not in QUANTIZED_ANEW:
        with np.errstate(all="ignore"):
            return dequantize(_packed(replace(stored, shape=shape, data=data)))
    from gguf import GGMLQuantizationType, quants  # takes longer to import than most models to open

    with np.errstate(all="ignore"):  # a broken scale shows up as a value that is not finite
        result: Float32 = quants.dequantize(data, GGMLQuantizationType[stored.type])
    return result


def view(stored: Stored) -> Plain | None:
    """The matrix in its format without a copy, None for a type that does not stand in the file like that."""
    if not FORMATS[stored.format].packed:
        return plain_view(stored.type, stored.data, stored.shape, stored.name)
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
    if (plain := view(weight)) is not None:
        return plain
    if weight.type in QUANTIZED_ANEW:
        result = quantized(weight, weight.format)
    else:
        result = _packed(weight)
        check_finite(weight)
    if not np.may_share_memory(result.codes, weight.data):
        release(weight.data)
    return result
