"""MXFP4 as OpenAI's gpt-oss has it in folders: for each tensor NAME its NAME_blocks and NAME_scales.

Blocks of 32 values, [..., rows, blocks, 16]: byte i holds value 2 i in its low and 2 i + 1 in its high bits.
The scale of a block is 2^(number - 127), uint8 [..., rows, blocks] (OCP Microscaling Formats 1.0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from kernels.arrays import Float32
from kernels.formats import BLOCKS
from kernels.stored import read_rows
from kernels.weights import Stored, Weight

from ..models.tensor_specs import TensorSpec
from .fields import invalid, shown
from .grouped import JoinedTensor, join
from .stored import StoredTensor

METHOD = "mxfp4"

_TYPE = "MXFP4"
_VALUES, _BYTES, *_ = BLOCKS[_TYPE]
_PARTS = ("_blocks", "_scales")


def join_mxfp4(path: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The tensors, with each `NAME_blocks` and `NAME_scales` as the tensor NAME."""
    return join(path, tensors, _PARTS, lambda base: _joined(path, base, tensors), "")


def _joined(path: Path, base: str, tensors: Mapping[str, StoredTensor]) -> Mxfp4Tensor:
    def fail(reason: str) -> NoReturn:
        raise invalid(path, f"tensor {shown(base)}{reason}")

    blocks, scales = (tensors.get(base + part) for part in _PARTS)
    assert blocks is not None
    if scales is None:
        fail("_scales is missing")
    if (blocks.type, scales.type) != ("U8", "U8"):
        fail(f"_blocks and _scales have the types {blocks.type} and {scales.type}; U8 is needed")
    if len(blocks.shape) < 3 or blocks.shape[-1] != _VALUES // 2:
        fail(f"_blocks has the shape {blocks.shape}, which is none of blocks of {_VALUES // 2} bytes")
    if scales.shape != blocks.shape[:-1]:
        fail(f"_scales has the shape {scales.shape}; {blocks.shape[:-1]} is needed")
    *above, count, _ = blocks.shape
    codes = blocks.data.reshape(math.prod(above), count, _VALUES // 2)
    return Mxfp4Tensor(
        base, (*above, count * _VALUES), _TYPE, (blocks, scales), codes, scales.data.reshape(codes.shape[:2])
    )


@dataclass(frozen=True, slots=True)
class Mxfp4Tensor(JoinedTensor):
    """codes: [rows, blocks, 16]; scales: [rows, blocks]; views of the mapped files."""

    codes: NDArray[np.uint8]
    scales: NDArray[np.uint8]

    @property
    def format(self) -> str:
        """The format that holds it as it is."""
        return BLOCKS[_TYPE].format

    def part(self, spec: TensorSpec, turned: bool = False) -> Mxfp4Tensor:
        """As `StoredTensor.part`."""
        assert not turned, "rows are in blocks"
        if self.shape == spec.shape:
            return self
        rows = slice(spec.first_row, spec.first_row + spec.shape[0] * spec.row_step, spec.row_step)
        codes, scales = self.codes[rows], self.scales[rows]
        sources = tuple(
            source._replace(data=values) for source, values in zip(self.sources, (codes, scales), strict=True)
        )
        return replace(self, shape=spec.shape, sources=sources, codes=codes, scales=scales)

    def _as_it_is(self, after: Callable[[int], None] | None) -> Weight:
        """Blocks as GGUF files have them."""
        stored = self._stored(slice(None))
        if after is not None:
            after(self.nbytes)
        return stored

    def _values(self, rows: slice) -> Float32:
        return read_rows(self._stored(rows), slice(None))

    def _stored(self, rows: slice) -> Stored:
        """Blocks of ggml: the scale, then value i in the low and i + 16 in the high bits of byte i."""
        codes, scales = self.codes[rows], self.scales[rows]
        data = np.empty((*scales.shape, _BYTES), np.uint8)
        data[..., 0] = scales
        low, high = data[..., 1::2], data[..., 2::2]  # bytes of even and odd values
        first, second = codes[..., : _VALUES // 4], codes[..., _VALUES // 4 :]
        low[...] = first & 15 | second << np.uint8(4)
        high[...] = first >> 4 | second & 0xF0
        return Stored(
            _TYPE, (len(scales), self.shape[-1]), data.reshape(len(scales), -1), f"tensor {shown(self.name)}"
        )
