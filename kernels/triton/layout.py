"""How a packed matrix lies in a GPU's memory, and how it gets there: by groups of 32 columns, the outputs of
a group side by side, so that neighbouring threads read neighbouring bytes. No byte more than the format has.

A buffer holds, in this order and each from a multiple of 16 bytes on: the codes [groups, outputs, bytes], the
scales [scales, outputs] and what they are multiples of, then the minima likewise. Numbers of 6, 5 or 3 bits
are cut into two planes, the lower bits first. In a byte of codes the first column has the lowest bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..blocks import READERS
from ..formats import ARRAYS, BLOCKS, FORMATS, GROUP, SCALES, TABLES, group_count
from ..stored import QUANTIZED_ANEW, canonical, release
from ..weights import Packed, Plain, Stored

PLANES = {8: (8,), 6: (4, 2), 5: (4, 1), 4: (4,), 3: (2, 1), 2: (2,)}
"""Bits of the planes that hold numbers of so many bits."""

ALIGNMENT = 16
VALUES_AT_ONCE = 1 << 22
"""Values of a matrix that are unpacked at a time on their way to the device."""


class Layout(NamedTuple):
    """Where the parts of a buffer begin, in bytes; 0 where there is none of a kind. end: bytes of it all."""

    codes: int
    codes_high: int
    scales: int
    scales_high: int
    units: int
    minima: int
    minima_high: int
    minima_units: int
    end: int


def layout(format: str, outputs: int, inputs: int) -> Layout:
    """The layout of a packed matrix."""
    form = FORMATS[format]
    kind, count = SCALES[form.scales], -(-inputs // form.group)
    sizes = [group_count(inputs) * outputs * GROUP * bits // 8 for bits in PLANES[form.bits]]
    sizes += [0] * (2 - len(sizes))
    numbers = [count * outputs * kind.bits // 8, 0]
    if kind.bits <= 8:
        planes = [-(-count * bits // 8) * outputs for bits in PLANES[kind.bits]]
        numbers = planes + [0] * (2 - len(planes))
    numbers.append(-(-inputs // kind.block) * outputs * 2 if kind.block else 0)
    sizes += numbers + (numbers if form.minima else [0, 0, 0])
    places, end = [], 0
    for size in sizes:
        places.append(end if size else 0)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return Layout._make([*places, end])


class Numbers(NamedTuple):
    """Scales or minima of some rows: as they are multiplied or added, float [rows, groups of the format]; or
    as integers from 0 up, uint8, and what they are multiples of, float16 [rows, super-blocks].
    """

    numbers: NDArray[Any]
    units: NDArray[np.float16] | None


class Rows(NamedTuple):
    """Some rows of a matrix. codes: uint8 [rows, groups of 32, 32], those of 8 bits with a sign."""

    codes: NDArray[np.uint8]
    scales: Numbers
    minima: Numbers | None


def _numbers(scales: str, values: NDArray[Any], units: NDArray[np.float16] | None) -> Numbers:
    """What a buffer holds of scales or minima [rows, blocks, those of a block]."""
    rows = len(values)
    if scales == "e8m0":
        return Numbers((np.frexp(values)[1] + 127).astype(np.uint8).reshape(rows, -1), None)
    if scales == "ue4m3":
        bits = (values * np.float32(2.0**-119)).view(np.uint32) >> 20
        return Numbers(bits.astype(np.uint8).reshape(rows, -1), None)
    if units is None:
        return Numbers(values.reshape(rows, -1), None)
    steps = np.where(units == 0, np.float32(1), units.astype(np.float32))[..., None]
    numbers = np.where(units[..., None] == 0, np.float32(0), values / steps)
    return Numbers((numbers - SCALES[scales].low).astype(np.uint8).reshape(rows, -1), units)


def _of_blocks(stored: Stored, rows: slice) -> Rows:
    """Rows of a type that has a format of its own. ValueError, naming it: scales that are not finite."""
    form = FORMATS[stored.format]
    data = stored.data[rows]
    blocks = data.reshape(len(data), -1, BLOCKS[stored.type].nbytes)
    with np.errstate(all="ignore"):
        parts = READERS[stored.type](blocks)
    for values in (parts.scales, parts.minima):
        if values is not None and not np.isfinite(values).all():
            row = rows.start + int(np.argmin(np.isfinite(values).all(axis=(1, 2))))
            raise ValueError(f"{stored.name}: row {row} holds a value that is not finite")
    minima = None if parts.minima is None else _numbers(form.scales, parts.minima, parts.minima_units)
    codes = parts.codes.astype(np.uint8, copy=False).reshape(len(data), -1, GROUP)
    return Rows(codes, _numbers(form.scales, parts.scales, parts.units), minima)


def _of_arrays(packed: Packed, rows: slice) -> Rows:
    assert packed.format in ARRAYS, packed.format
    codes = packed.codes[rows]
    if codes.dtype == np.int8:
        codes = codes.view(np.uint8)
    else:
        codes = np.concatenate([codes & 15, codes >> 4], axis=-1)
    minima = None if packed.minima is None else Numbers(packed.minima[rows], None)
    return Rows(codes, Numbers(packed.scales[rows], None), minima)


def pieces(weight: Packed | Stored) -> Iterator[tuple[int, Rows]]:
    """A packed matrix in pieces, each with the number of its first row."""
    if isinstance(weight, Stored) and weight.type not in READERS:
        whole = canonical(weight)  # views into the file
        assert isinstance(whole, Packed)
        weight = whole
    rows, columns = weight.shape
    size = max(1, VALUES_AT_ONCE // max(1, columns))
    for start in range(0, rows, size):
        here = slice(start, min(rows, start + size))
        if isinstance(weight, Packed):
            yield start, _of_arrays(weight, here)
        else:
            yield start, _of_blocks(weight, here)
            release(weight.data[here])


def quantized_anew(weight: Packed | Stored | Plain) -> bool:
    """Whether a weight's type has no format of its own."""
    return isinstance(weight, Stored) and weight.type in QUANTIZED_ANEW


def _plane(numbers: Tensor, bits: int) -> Tensor:
    """Numbers below 2^bits [..., n], 8 / bits of them a byte."""
    fields = 8 // bits
    missing = -numbers.shape[-1] % fields
    if missing:
        numbers = torch.nn.functional.pad(numbers, (0, missing))
    parts = numbers.unflatten(-1, (-1, fields))
    packed: Tensor = parts[..., 0].clone()
    for i in range(1, fields):
        packed |= parts[..., i] << (bits * i)
    return packed


def _planes(numbers: Tensor, bits: int) -> list[Tensor]:
    """The planes of numbers."""
    planes, shift = [], 0
    for own in PLANES[bits]:
        planes.append(_plane((numbers >> shift) & (1 << own) - 1, own))
        shift += own
    return planes


def write(data: Tensor, format: str, outputs: int, inputs: int, start: int, rows: Rows) -> None:
    """Put rows into a buffer (uint8), from output `start` on."""
    form, places = FORMATS[format], layout(format, outputs, inputs)
    stop = start + len(rows.codes)
    codes = _planes(torch.from_numpy(np.ascontiguousarray(rows.codes)).to(data.device), form.bits)
    for plane, begin in zip(codes, (places.codes, places.codes_high), strict=False):
        target = data[begin:].as_strided((plane.shape[1], outputs, plane.shape[2]), _strides(plane, outputs))
        target[:, start:stop] = plane.transpose(0, 1)
    parts = [(rows.scales, (places.scales, places.scales_high, places.units))]
    if rows.minima is not None:
        parts.append((rows.minima, (places.minima, places.minima_high, places.minima_units)))
    for (numbers, units), (low, high, of_units) in parts:
        tensor = torch.from_numpy(np.ascontiguousarray(numbers)).to(data.device)
        planes = _planes(tensor, SCALES[form.scales].bits) if tensor.dtype is torch.uint8 else [tensor]
        for plane, begin in zip(planes, (low, high), strict=False):
            columns(data, begin, plane.dtype, plane.shape[1], outputs)[:, start:stop] = plane.T
        if units is not None:
            tensor = torch.from_numpy(np.ascontiguousarray(units)).to(data.device)
            columns(data, of_units, tensor.dtype, tensor.shape[1], outputs)[:, start:stop] = tensor.T


def _strides(plane: Tensor, outputs: int) -> tuple[int, int, int]:
    return outputs * plane.shape[2], plane.shape[2], 1


def columns(data: Tensor, begin: int, dtype: torch.dtype, count: int, outputs: int) -> Tensor:
    """A part of a buffer as [count, outputs] of a type."""
    part: Tensor = data[begin : begin + count * outputs * dtype.itemsize].view(dtype)
    return part.view(count, outputs)


def _fields(plane: Tensor, bits: int) -> Tensor:
    """What `_plane` packed, [..., bytes] -> [..., 8 / bits * bytes]."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=plane.device)
    return ((plane[..., None] >> shifts) & (1 << bits) - 1).flatten(-2)


def _joined(planes: list[Tensor], bits: int) -> Tensor:
    result, shift = torch.zeros_like(planes[0], dtype=torch.int32), 0
    for plane, own in zip(planes, PLANES[bits], strict=True):
        result |= plane.int() << shift
        shift += own
    return result


def _read_numbers(
    data: Tensor, format: str, inputs: int, outputs: int, places: tuple[int, int, int], rows: Any
) -> Tensor:
    """Scales or minima of some rows as float32 [rows, groups of the format]."""
    form = FORMATS[format]
    kind, count = SCALES[form.scales], -(-inputs // form.group)
    if kind.bits > 8:
        dtype = torch.float16 if kind.bits == 16 else torch.float32
        return columns(data, places[0], dtype, count, outputs)[:, rows].T.float()
    planes = []
    for begin, bits in zip(places, PLANES[kind.bits], strict=False):
        packed = columns(data, begin, torch.uint8, -(-count * bits // 8), outputs)[:, rows].T
        planes.append(_fields(packed, bits)[:, :count])
    numbers = _joined(planes, kind.bits)
    if form.scales == "e8m0":
        return torch.ldexp(torch.ones_like(numbers, dtype=torch.float32), numbers - 128)
    if form.scales == "ue4m3":
        return (numbers << 20).view(torch.float32) * 2.0**119
    units = columns(data, places[2], torch.float16, inputs // kind.block, outputs)[:, rows].T.float()
    return (numbers + kind.low).float() * units.repeat_interleave(kind.block // form.group, dim=1)


def read(data: Tensor, format: str, outputs: int, inputs: int, rows: Any) -> Tensor:
    """Rows of a buffer, by a slice or int64 numbers, as float32 values [rows, inputs]."""
    form, places = FORMATS[format], layout(format, outputs, inputs)
    planes = []
    for begin, bits in zip((places.codes, places.codes_high), PLANES[form.bits], strict=False):
        nbytes, groups = GROUP * bits // 8, group_count(inputs)
        plane = data[begin : begin + groups * outputs * nbytes].view(groups, outputs, nbytes)[:, rows]
        planes.append(_fields(plane.transpose(0, 1), bits).flatten(1))
    codes = _joined(planes, form.bits)
    if form.table:
        integers = torch.tensor(TABLES[form.table], device=data.device)[codes.long()]
    else:
        integers = codes.to(torch.int8).int() if form.bits == 8 else codes + form.low
    scales = _read_numbers(data, format, inputs, outputs, places[2:5], rows)
    values = integers[:, :inputs].float() * scales.repeat_interleave(form.group, dim=1)[:, :inputs]
    if form.minima:
        minima = _read_numbers(data, format, inputs, outputs, places[5:8], rows)
        values = values + minima.repeat_interleave(form.group, dim=1)[:, :inputs]
    return values
