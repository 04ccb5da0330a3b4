"""Weight formats: quantizing to q8, q4 and nf4, and back."""

from typing import Any

import numpy as np

from kernels.formats import MADE
from kernels.native.packing import fastest_packer
from kernels.quantize import quantize_rows
from kernels.weights import Packed, Plain, dequantize

from ..arrays import as_array

__all__ = ["dequantize", "quantize"]


def quantize(w: Any, format: str) -> Packed:
    """Quantize a float matrix [rows, columns] to a packed format, see `quantize_rows`.

    w: an array, a tensor or a list of rows. A group of zeros comes back as zeros. ValueError: unknown format,
    no matrix, or values that can't be held.
    """
    if format not in MADE:
        raise ValueError(f"format must be {' or '.join(MADE)}, not {format!r}")
    w = as_array(w)
    if w.ndim != 2 or 0 in w.shape:
        raise ValueError(f"a matrix with at least one row and column is needed, not the shape {w.shape}")

    def read(rows: slice) -> Plain:
        return Plain(np.ascontiguousarray(w[rows], np.float32), "f32")

    return quantize_rows((w.shape[0], w.shape[1]), format, read, fastest_packer())
