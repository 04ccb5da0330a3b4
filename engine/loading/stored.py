"""A tensor as a file stores it, and the weight that it becomes, in that format or another."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.interface import Float32
from kernels.native.packing import fastest_packer
from kernels.quantize import row_pieces
from kernels.stored import plain_view, quantized, read_rows, release, view
from kernels.weights import BLOCKS, FORMATS, Plain, Stored, Weight

from ..models.family import TensorSpec
from .fields import shown


class StoredTensor(NamedTuple):
    """`shape` in numpy order (rows first), `type` by name, `data` its bytes in the mapped file."""

    name: str
    shape: tuple[int, ...]
    type: str
    data: NDArray[np.uint8]


def part_of(tensor: StoredTensor, spec: TensorSpec, turned: bool) -> StoredTensor:
    """The rows of a stored tensor that are one of the tensors the decoder takes, still where they are.

    turned: what is stored as a row is a column.
    """
    if tensor.shape == spec.shape:
        return tensor
    count = spec.shape[0] * spec.row_step
    if turned:
        experts, inputs, outputs = tensor.shape
        expert, first = divmod(spec.first_row, outputs)
        values = tensor.data.reshape(experts, inputs, outputs, -1)[expert].swapaxes(0, 1)
        return tensor._replace(shape=spec.shape, data=values[first : first + count : spec.row_step])
    rows = tensor.data.reshape(
        math.prod(spec.stored_shape[: len(spec.stored_shape) + 1 - len(spec.shape)]), -1
    )
    return tensor._replace(
        shape=spec.shape, data=rows[spec.first_row : spec.first_row + count : spec.row_step]
    )


def _matrix(tensor: StoredTensor) -> Stored:
    rows, columns = tensor.shape
    return Stored(tensor.type, (rows, columns), tensor.data.reshape(rows, -1), f"tensor {shown(tensor.name)}")


def _values(stored: Stored) -> Float32:
    values = np.empty(stored.shape, np.float32)
    for rows in row_pieces(*stored.shape):
        values[rows] = read_rows(stored, rows)
    return values


def to_weight(
    tensor: StoredTensor, format: str, threads: int | None = None, after: Callable[[int], None] | None = None
) -> Weight:
    """A matrix in a format of `kernels.weights`. In its type's own it is a view of the file, or its blocks as
    they are.

    Other packed formats are made here, on all threads or so many; f32 holds the values that are meant. after:
    told the bytes of each piece that is read for one. ValueError, naming the tensor: values that can't be
    held.
    """
    stored = _matrix(tensor)
    if format == BLOCKS[tensor.type].format:
        return view(stored) or stored
    if FORMATS[format].packed:
        return quantized(stored, format, fastest_packer(threads), after)
    weight = Plain(_values(stored), "f32")
    release(tensor.data)  # or the file would stay in memory beside what was made of it
    return weight


def to_vector(tensor: StoredTensor) -> Plain:
    """A one-dimensional tensor of any type as float32."""
    if tensor.type == "F32":
        return plain_view(tensor.type, tensor.data, tensor.shape)
    matrix = StoredTensor(tensor.name, (1, *tensor.shape), tensor.type, tensor.data)
    return Plain(_values(_matrix(matrix))[0], "f32")
