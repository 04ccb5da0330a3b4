"""A tensor as a file stores it, and the types it may have."""

from __future__ import annotations

import mmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class StoredTensor(NamedTuple):
    """`shape` in numpy order (rows first), `type` by name, `data` its bytes in the mapped file."""

    name: str
    shape: tuple[int, ...]
    type: str
    data: NDArray[np.uint8]

    @property
    def mapping(self) -> mmap.mmap | None:
        """The mapped file that the data is in."""
        whole: Any = self.data
        while isinstance(whole, np.ndarray):
            whole = whole.base
        mapped = whole.obj if isinstance(whole, memoryview) else whole
        return mapped if isinstance(mapped, mmap.mmap) else None

    def release(self) -> None:
        """Let go of the file's pages that hold nothing but this tensor; reading it brings them back."""
        mapped = self.mapping
        if mapped is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        offset = self.data.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
        start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = (offset + self.data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if start < stop:
            mapped.madvise(mmap.MADV_DONTNEED, start, stop - start)


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


BLOCKS = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ1_S": (256, 50),
    "IQ1_M": (256, 56),
    "IQ2_XXS": (256, 66),
    "IQ2_XS": (256, 74),
    "IQ2_S": (256, 82),
    "IQ3_XXS": (256, 98),
    "IQ3_S": (256, 110),
    "IQ4_NL": (32, 18),
    "IQ4_XS": (256, 136),
    "TQ1_0": (256, 54),
    "TQ2_0": (256, 66),
    "MXFP4": (32, 17),
}
"""Values in a block, and its bytes, of each type that can be converted (ggml-common.h)."""
