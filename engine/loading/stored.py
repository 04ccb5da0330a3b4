"""A tensor as a file stores it, and the weight that it becomes, in that format or another."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.arrays import Float32
from kernels.formats import BLOCKS, FORMATS
from kernels.native.packing import fastest_packer
from kernels.quantize import row_pieces
from kernels.stored import QUANTIZED_ANEW, mapping_of, plain_view, quantized, read_rows, release, view
from kernels.weights import Plain, Stored, Weight

from ..models.tensor_specs import TensorSpec
from .fields import shown


class StoredTensor(NamedTuple):
    """`shape` in numpy order (rows first), `type` by name, `data` its bytes in the mapped file.

    factor: what its values are multiplied by besides.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    data: NDArray[np.uint8]
    factor: float = 1.0

    @property
    def format(self) -> str:
        """The format of its type."""
        return BLOCKS[self.type].format

    @property
    def label(self) -> str:
        """What people call its type."""
        if self.type in QUANTIZED_ANEW:
            return f"{self.type} as int8"
        return self.type if FORMATS[self.format].packed else self.type.lower()

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return int(self.data.nbytes)

    def mappings(self) -> Iterator[mmap.mmap]:
        """The mapped file, if it lies in one."""
        mapped = mapping_of(self.data)
        if mapped is not None:
            yield mapped

    def part(self, spec: TensorSpec, turned: bool = False) -> StoredTensor:
        """The rows that are one of the tensors the decoder takes, still where they are.

        turned: what is stored as a row is a column.
        """
        if self.shape == spec.shape:
            return self
        count = spec.shape[0] * spec.row_step
        if turned:
            experts, inputs, outputs = self.shape
            expert, first = divmod(spec.first_row, outputs)
            values = self.data.reshape(experts, inputs, outputs, -1)[expert].swapaxes(0, 1)
            return self._replace(shape=spec.shape, data=values[first : first + count : spec.row_step])
        flat = math.prod(spec.stored_shape[: len(spec.stored_shape) + 1 - len(spec.shape)])
        rows = self.data.reshape(flat, -1)[spec.first_row : spec.first_row + count : spec.row_step]
        return self._replace(shape=spec.shape, data=rows)

    def to_weight(
        self, format: str, threads: int | None = None, after: Callable[[int], None] | None = None
    ) -> Weight:
        """A matrix in a format of `kernels.formats`. In its own it is a view of the file, or its blocks.

        Other packed formats are made here, on all threads or so many; f32 holds the values that are meant.
        after: told the bytes that are read, piece by piece. ValueError, naming the tensor: values that can't
        be held.
        """
        stored = _matrix(self)
        if FORMATS[format].packed and format != self.format:
            return quantized(stored, format, fastest_packer(threads), after)
        if after is not None:
            after(self.nbytes)
        if format == self.format:
            return view(stored) or stored
        weight = Plain(_values(stored), "f32", stored.name)
        release(self.data)  # or the file would stay in memory beside what was made of it
        return weight


def _matrix(tensor: StoredTensor) -> Stored:
    rows, columns = tensor.shape
    data = tensor.data.reshape(rows, -1)
    if not np.may_share_memory(data, tensor.data):  # its columns stood in rows
        release(tensor.data)
    return Stored(tensor.type, (rows, columns), data, f"tensor {shown(tensor.name)}", tensor.factor)


def _values(stored: Stored) -> Float32:
    values = np.empty(stored.shape, np.float32)
    for rows in row_pieces(*stored.shape):
        values[rows] = read_rows(stored, rows)
    return values


def to_vector(tensor: StoredTensor) -> Plain:
    """A one-dimensional tensor of any type as float32. ValueError, naming it: values that are not finite."""
    if tensor.type == "F32":
        vector = plain_view(tensor.type, tensor.data, tensor.shape)
    else:
        matrix = StoredTensor(tensor.name, (1, *tensor.shape), tensor.type, tensor.data)
        vector = Plain(_values(_matrix(matrix))[0], "f32")
    if not np.isfinite(vector.values).all():
        raise ValueError(f"tensor {shown(tensor.name)} holds a value that is not finite")
    return vector
