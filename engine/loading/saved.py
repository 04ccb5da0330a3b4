"""Folders that `termchat models quantize` has written: codes, scales and minima as they are computed with.

config.json has a quantization_config with quant_method "termchat" and version 1. A matrix NAME is stored as
NAME_codes (I8 or U8, [rows, bytes]) and NAME_scales (F16, [rows, groups of 32 columns]), and for 4 bits
NAME_minima, like the scales: value = code * scale + minimum. Codes of 8 bits stand in order; of 4 bits byte i
of a group holds column i in its low and column i + 16 in its high bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from kernels.interface import Float32
from kernels.weights import FORMATS, GROUP, Packed, Weight, dequantize

from ..models.family import TensorSpec
from .fields import Fields, invalid, shown
from .grouped import JoinedTensor
from .stored import StoredTensor

METHOD = "termchat"
VERSION = 1

CODES, SCALES, MINIMA = "_codes", "_scales", "_minima"


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
        return "int8" if self.packed.minima is None else "int4"

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
        return dequantize(self.packed, rows.start, rows.stop)

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
    bases = [name.removesuffix(CODES) for name in tensors if name.endswith(CODES)]
    taken = {base + part for base in bases for part in (CODES, SCALES, MINIMA)}
    joined: dict[str, Any] = {name: tensor for name, tensor in tensors.items() if name not in taken}
    for base in bases:
        if base in joined:
            raise invalid(path, f"tensor {shown(base)} is stored twice, quantized and as it was")
        joined[base] = _matrix(path, base, tensors)
    return joined


def _matrix(path: Path, base: str, tensors: Mapping[str, StoredTensor]) -> SavedTensor:
    def fail(reason: str) -> NoReturn:
        raise invalid(path, f"tensor {shown(base)}{reason}")

    codes, scales, minima = (tensors.get(base + part) for part in (CODES, SCALES, MINIMA))
    assert codes is not None, "it was found by its codes"
    form = FORMATS["q8" if minima is None else "q4"]
    if codes.type != ("I8" if minima is None else "U8") or len(codes.shape) != 2:
        fail(f"{CODES} has the type {codes.type} and {len(codes.shape)} dimensions, which can't be read")
    rows, width = codes.shape
    groups = width // form.code_bytes
    for suffix, numbers in ((SCALES, scales), (MINIMA, minima)):
        if numbers is None:
            if suffix == SCALES:
                fail(f"{SCALES} is missing")
        elif numbers.type != "F16" or numbers.shape != (rows, groups):
            fail(f"{suffix} is {numbers.type} {numbers.shape}; F16 {(rows, groups)} is needed")
    if not rows or not groups or width % form.code_bytes:
        fail(f"{CODES} has the shape {codes.shape}, which holds no whole groups")
    halves = [
        None if n is None else np.require(n.data.view("<f2").reshape(rows, groups), requirements="A")
        for n in (scales, minima)
    ]
    assert halves[0] is not None, "it was looked at"
    packed = Packed(
        form.name,
        (rows, groups * GROUP),
        codes.data.view(form.dtype).reshape(rows, groups, form.code_bytes),
        halves[0],
        halves[1],
    )
    sources = tuple(tensor for tensor in (codes, scales, minima) if tensor is not None)
    return SavedTensor(base, packed.shape, "termchat", sources, packed)
