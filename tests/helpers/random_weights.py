"""Weights of random models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.models.families import llama
from engine.models.family import Family
from engine.models.spec import ModelSpec
from engine.models.tensor_specs import tensor_specs
from kernels.formats import ARRAYS, BLOCKS, FORMATS, group_count
from kernels.weights import Packed, Plain, Weight
from stored_blocks import random_blocks


def random_packed(rng: np.random.Generator, form: str, rows: int, columns: int) -> Packed:
    """A matrix of random codes, in a format that values are quantized to."""
    format = FORMATS[form]
    grid = rows, -(-columns // format.group)
    scales = (rng.random(grid, np.float32) * (0.3 / format.top)).astype(format.scale_type)
    least, most = np.iinfo(format.dtype).min, np.iinfo(format.dtype).max
    codes = rng.integers(least, most + 1, (rows, group_count(columns), format.code_bytes)).astype(
        format.dtype
    )
    minima = (scales * np.float16(-(format.top // 2))).astype(np.float16) if format.minima else None
    return Packed(form, (rows, columns), codes, scales, minima)


def type_of(form: str) -> str:
    """A type of blocks that becomes this format."""
    return next(type for type, block in BLOCKS.items() if block.format == form)


def fitting(form: str, columns: int) -> int:
    """The least number of columns from this one on that a matrix in a format can have."""
    unit = 1 if form in ARRAYS else BLOCKS[type_of(form)].values
    return -(-columns // unit) * unit


def random_weight(rng: np.random.Generator, form: str, rows: int, columns: int, scale: float = 0.1) -> Weight:
    """A matrix in a format; scale: standard deviation of plain values."""
    if form in ARRAYS:
        return random_packed(rng, form, rows, columns)
    if FORMATS[form].packed:
        return random_blocks(rng, type_of(form), rows, columns)
    values = rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(scale)
    if form == "bf16":
        return Plain((values.view(np.uint32) >> 16).astype(np.uint16), "bf16")
    return Plain(values.astype(np.float16) if form == "f16" else values, form)


class RandomTensors(dict[str, Weight]):
    """Weights of a random model by canonical name; matrices in the given formats by turns.

    family: which roles there are. scale: standard deviation of plain matrices; spread: that of norms
    (around 1) and biases (around 0).
    """

    def __init__(
        self,
        spec: ModelSpec,
        forms: Sequence[str] = ("f32",),
        *,
        family: Family = llama.FAMILY,
        tied: bool = True,
        biases: bool = False,
        scale: float = 0.1,
        spread: float = 0.1,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)

        for entry in tensor_specs(family, spec, "gguf"):
            bias = entry.role.endswith("bias")
            if (bias and not biases) or (tied and entry.role == "head"):
                continue
            if entry.is_matrix:
                self[entry.name] = random_weight(rng, forms[len(self) % len(forms)], *entry.shape, scale)
            else:
                values = rng.standard_normal(entry.shape) * spread + (0 if bias else 1)
                self[entry.name] = Plain(values.astype(np.float32), "f32")

    has = dict.__contains__
