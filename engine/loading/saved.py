"""Folders that `termchat models quantize` has written: codes, scales and minima as they are computed with.

config.json has a quantization_config with quant_method "termchat" and version 1. A matrix NAME is stored as
NAME_codes (I8 or U8, [rows, bytes]) and NAME_scales [rows, groups]; int4 has NAME_minima, like the scales:

- int8, int4: value = code * scale (+ minimum), F16, of 32 columns each.
- nf4: value = scale * what `kernels.formats.TABLES` has for the code, F32, of 64 columns each.

Codes of 8 bits stand in order; of 4 bits byte i of 32 columns holds column i in its low and column i + 16 in
its high bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from kernels.arrays import Float32
from kernels.formats import FORMATS, GROUP
from kernels.weights import Packed, Weight, dequantize

from ..models.tensor_specs import TensorSpec
from .fields import Fields, invalid, shown
from .grouped import JoinedTensor, join
from .stored import StoredTensor

METHOD = "termchat"
VERSION = 1

CODES, SCALES, MINIMA = "_codes", "_scales", "_minima"

_FORMATS = {("I8", "F16", False): "q8", ("U8", "F16", True): "q4", ("U8", "F32", False): "nf4"}
"""By the types of codes and scales, and whether there are minima."""

_LABELS = {"q8": "int8", "q4": "int4", "nf4": "nf4"}


@dataclass(frozen=True, slots=True)
class SavedTensor(JoinedTensor):
    """A matrix whose parts are views of the mapped file."""

    packed: Packed

    @property
    def format(self) -> str:
        """The format that holds it as it is."""
        return self.packed.format

    @property
    def label(self) -> str:
        """What people call it."""
        return _LABELS[self.packed.format]

    def part(self, spec: TensorSpec, turned: bool = False) -> SavedTensor:
        """As `StoredTensor.part`."""
        if self.shape == spec.shape:
            return self
        assert not turned, "codes are packed"
        rows = slice(spec.first_row, spec.first_row + spec.shape[0] * spec.row_step, spec.row_step)
        whole = self.packed
        minima = None if whole.minima is None else whole.minima[rows]
        shape = (spec.shape[0], self.shape[1])
        part = replace(whole, shape=shape, codes=whole.codes[rows], scales=whole.scales[rows], minima=minima)
        return replace(self, shape=spec.shape, packed=part)

    def _values(self, rows: slice) -> Float32:
        with np.errstate(all="ignore"):
            values = dequantize(self.packed, rows.start, rows.stop)
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            raise ValueError(f"row {rows.start + int(np.argmin(finite))} holds a value that is not finite")
        return values

    def _as_it_is(self, after: Callable[[int], None] | None) -> Weight:
        self._tell(slice(0, self.shape[0]), after)
        return self.packed


def check_saved(config: Fields) -> None:
    """EngineError(model_invalid): a later version has written it."""
    version = config.integer("version", 1, 1 << 20)
    if version != VERSION:
        config.fail("version", f"{version} is of a later termchat; install that")


def join_saved(path: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The tensors, with each `NAME_codes` and what belongs to it as the matrix `NAME`."""
    return join(path, tensors, (CODES, SCALES, MINIMA), lambda base: _matrix(path, base, tensors), "")


def _matrix(path: Path, base: str, tensors: Mapping[str, StoredTensor]) -> SavedTensor:
    def fail(reason: str) -> NoReturn:
        raise invalid(path, f"tensor {shown(base)}{reason}")

    codes, scales, minima = (tensors.get(base + part) for part in (CODES, SCALES, MINIMA))
    assert codes is not None, "it was found by its codes"
    if scales is None:
        fail(f"{SCALES} is missing")
    form = FORMATS[_FORMATS.get((codes.type, scales.type, minima is not None), "f32")]
    if not form.packed or len(codes.shape) != 2:
        fail(f" has codes of {codes.type} {codes.shape} and scales of {scales.type}, which can't be read")
    rows, width = codes.shape
    columns = width // form.code_bytes * GROUP
    if not rows or not columns or width % form.code_bytes or columns % form.group:
        fail(f"{CODES} has the shape {codes.shape}, which holds no whole groups")
    grid = rows, columns // form.group
    for suffix, numbers in ((SCALES, scales), (MINIMA, minima)):
        if numbers is not None and (numbers.type != scales.type or numbers.shape != grid):
            fail(f"{suffix} is {numbers.type} {numbers.shape}; {scales.type} {grid} is needed")
    packed = Packed(
        form.name,
        (rows, columns),
        codes.data.view(form.dtype).reshape(rows, -1, form.code_bytes),
        _numbers(scales),
        None if minima is None else _numbers(minima),
        name=f"tensor {shown(base)}",
    )
    sources = tuple(tensor for tensor in (codes, scales, minima) if tensor is not None)
    return SavedTensor(base, packed.shape, "termchat", sources, packed)


def _numbers(tensor: StoredTensor) -> NDArray[Any]:
    """Scales or minima, as views of the file where they are aligned there."""
    dtype = "<f2" if tensor.type == "F16" else "<f4"
    return np.require(tensor.data.view(dtype).reshape(tensor.shape), requirements="A")
