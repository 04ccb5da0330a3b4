"""A tensor as a file stores it, and the types it may have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class StoredTensor(NamedTuple):
    """`shape` in numpy order (rows first), `type` by name, `data` its bytes in the mapped file."""

    name: str
    shape: tuple[int, ...]
    type: str
    data: NDArray[np.uint8]


GGUF_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}
"""Names of the type numbers in a GGUF file (ggml.h)."""
_UNSUPPORTED = {
    9: "Q8_1",
    15: "Q8_K",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    40: "NVFP4",
    41: "Q1_0",
    42: "Q2_0",
}


def type_name(number: int) -> str:
    """A type of ggml's that no format here stands for, by its number and, where it is known, its name."""
    name = _UNSUPPORTED.get(number)
    return f"number {number}" if name is None else f"number {number} ({name})"
