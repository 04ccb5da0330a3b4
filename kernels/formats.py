"""The formats of weights: one table, from which Python and C++ take everything, and the types of blocks that
files hold them in.

A matrix is [rows, columns] = [outputs, inputs]. Groups of columns share a scale; where they do not divide the
columns, the last group is filled up with codes that are worth nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

GROUP = 32
"""Columns that share one scale, and that backends with integer products quantize together."""


def group_count(columns: int) -> int:
    """Number of groups that hold `columns` values."""
    return -(-columns // GROUP)


class ScaleKind(NamedTuple):
    """How scales (and minima, likewise) are kept in a backend's memory and in files.

    bits: of one. low: what 0 stands for. block: inputs that share a float16 which scales are multiples of, 0
    where each stands for itself.
    """

    bits: int
    low: int = 0
    block: int = 0


SCALES = {
    "f16": ScaleKind(16),
    "f32": ScaleKind(32),
    "e8m0": ScaleKind(8),
    "ue4m3": ScaleKind(8),
    "k4": ScaleKind(4, 0, 256),
    "k6": ScaleKind(6, 0, 256),
    "s6": ScaleKind(6, -32, 256),
    "s8": ScaleKind(8, -128, 256),
}
"""e8m0: 2^(number - 128); ue4m3: four bits of exponent, three of fraction, no sign; both half of what OCP
says, as tables hold doubled values. k and s: integers, those that are multiplied with a float16."""

TABLES = {
    "iq4": (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
    "e2m1": (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12),
    "nf4": (-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127),
}
"""What the codes 0 to 15 stand for. iq4: that of ggml's IQ4_NL. e2m1: the doubled values of OCP MX's 4-bit
floats. nf4: those of QLoRA (arXiv 2305.14314) times 127, rounded: at most 0.0037 of the largest magnitude
off."""


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How a matrix is held. dtype: of the array of its codes, or values.

    Packed: value = integer * scale + minimum, with codes of so many bits, a scale and (where it has any) a
    minimum of each `group` of columns. The integer is code + low, or what the `table` has for the code; no
    integer is below `low`.

    In arrays codes come in groups of 32 columns. Those of dtype uint8 have 4 bits: byte i of a group holds
    column i in its low and column i + 16 in its high nibble. Those of dtype int8 are the integers themselves.
    Scales and minima are arrays of float16 or float32, whatever they are in a backend's memory.

    Plain (group 1): values of so many bits as they are; bfloat16 as its 16 bits.
    """

    name: str
    bits: int
    dtype: type[np.generic]
    group: int = 1
    scales: str = "f16"
    minima: bool = False
    low: int = 0
    table: str = ""

    @property
    def packed(self) -> bool:
        """Whether it has codes and scales."""
        return self.group > 1

    @property
    def code_bytes(self) -> int:
        """Bytes of the array of codes of 32 columns, or of a value."""
        if not self.packed:
            return self.bits // 8
        return GROUP if self.dtype is np.int8 else GROUP * self.bits // 8

    @property
    def columns(self) -> int:
        """Columns that a backend keeps together: of a super-block, of a scale or 32."""
        return SCALES[self.scales].block or max(self.group, GROUP) if self.packed else 1

    @property
    def scale_type(self) -> type[np.floating[Any]]:
        """Of scales and minima in arrays: float16 where they are."""
        return np.float16 if self.scales == "f16" else np.float32

    @property
    def top(self) -> int:
        """The most steps from a group's minimum, or from 0 in both directions where it has none."""
        return (1 << self.bits) - 1 if self.minima else (1 << self.bits - 1) - 1

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor in a backend's memory: codes, scales and minima, or values."""
        if not self.packed:
            return math.prod(shape) * self.bits // 8
        kind, numbers = SCALES[self.scales], 2 if self.minima else 1
        scales = self.columns // self.group * kind.bits + (16 if kind.block else 0)
        of_columns = (self.columns * self.bits + numbers * scales) // 8
        return math.prod(shape[:-1]) * -(-shape[-1] // self.columns) * of_columns

    def pack(self, integers: NDArray[Any]) -> NDArray[Any]:
        """The array of codes for integers [rows, groups, 32]; with a table, for codes."""
        if self.dtype is np.int8:
            return integers.astype(np.int8)
        codes = integers.astype(np.uint8)
        half = GROUP // 2
        return codes[..., :half] | codes[..., half:] << np.uint8(4)

    def unpack(self, codes: NDArray[Any]) -> NDArray[Any]:
        """The integers of an array of codes: [rows, groups, 32]."""
        if self.dtype is np.int8:
            return codes
        unsigned = np.concatenate([codes & 15, codes >> 4], axis=-1)
        return np.array(TABLES[self.table], np.int8)[unsigned] if self.table else unsigned


FORMATS = {
    format.name: format
    for format in (
        WeightFormat("q4", 4, np.uint8, 32, minima=True),
        WeightFormat("q8", 8, np.int8, 32, low=-128),
        WeightFormat("q4_0", 4, np.int8, 32, low=-8),
        WeightFormat("q5_0", 5, np.int8, 32, low=-16),
        WeightFormat("q5_1", 5, np.int8, 32, minima=True),
        WeightFormat("q4_k", 4, np.int8, 32, "k6", minima=True),
        WeightFormat("q5_k", 5, np.int8, 32, "k6", minima=True),
        WeightFormat("q6_k", 6, np.int8, 16, "s8", low=-32),
        WeightFormat("q3_k", 3, np.int8, 16, "s6", low=-4),
        WeightFormat("q2_k", 2, np.int8, 16, "k4", minima=True),
        WeightFormat("tq2", 2, np.int8, 256, low=-1),
        WeightFormat("iq4_nl", 4, np.int8, 32, low=-128, table="iq4"),
        WeightFormat("iq4_xs", 4, np.int8, 32, "s6", low=-128, table="iq4"),
        WeightFormat("mxfp4", 4, np.int8, 32, "e8m0", low=-16, table="e2m1"),
        WeightFormat("nvfp4", 4, np.int8, 16, "ue4m3", low=-16, table="e2m1"),
        WeightFormat("nf4", 4, np.uint8, 64, "f32", low=-128, table="nf4"),
        WeightFormat("q8_64", 8, np.int8, 64, "f32", low=-128),
        WeightFormat("f32", 32, np.float32),
        WeightFormat("f16", 16, np.float16),
        WeightFormat("bf16", 16, np.uint16),
    )
}
"""Every format, by name. The tables of cpp/formats.hpp are the same, or the library is not loaded."""

MADE = ("q4", "q8", "nf4")
"""Packed formats that float values are quantized to."""

ARRAYS = (*MADE, "q8_64")
"""Formats that a backend takes as arrays: q8_64 holds what others have quantized with float32 scales.
The rest of the packed ones stand in files only, and are taken as blocks."""


class BlockType(NamedTuple):
    """A type of blocks in a file: values of a block, its bytes, and the format that it is computed in.

    number: of the type in GGUF files (ggml.h).
    """

    values: int
    nbytes: int
    format: str
    number: int


BLOCKS = {
    "F32": BlockType(1, 4, "f32", 0),
    "F16": BlockType(1, 2, "f16", 1),
    "BF16": BlockType(1, 2, "bf16", 30),
    "Q4_0": BlockType(32, 18, "q4_0", 2),
    "Q4_1": BlockType(32, 20, "q4", 3),
    "Q5_0": BlockType(32, 22, "q5_0", 6),
    "Q5_1": BlockType(32, 24, "q5_1", 7),
    "Q8_0": BlockType(32, 34, "q8", 8),
    "Q2_K": BlockType(256, 84, "q2_k", 10),
    "Q3_K": BlockType(256, 110, "q3_k", 11),
    "Q4_K": BlockType(256, 144, "q4_k", 12),
    "Q5_K": BlockType(256, 176, "q5_k", 13),
    "Q6_K": BlockType(256, 210, "q6_k", 14),
    "IQ1_S": BlockType(256, 50, "q8", 19),
    "IQ1_M": BlockType(256, 56, "q8", 29),
    "IQ2_XXS": BlockType(256, 66, "q8", 16),
    "IQ2_XS": BlockType(256, 74, "q8", 17),
    "IQ2_S": BlockType(256, 82, "q8", 22),
    "IQ3_XXS": BlockType(256, 98, "q8", 18),
    "IQ3_S": BlockType(256, 110, "q8", 21),
    "IQ4_NL": BlockType(32, 18, "iq4_nl", 20),
    "IQ4_XS": BlockType(256, 136, "iq4_xs", 23),
    "TQ1_0": BlockType(256, 54, "tq2", 34),
    "TQ2_0": BlockType(256, 66, "tq2", 35),
    "MXFP4": BlockType(32, 17, "mxfp4", 39),
    "NVFP4": BlockType(64, 36, "nvfp4", 40),
}
"""Every type that can be computed with, by ggml's name (ggml-common.h)."""
