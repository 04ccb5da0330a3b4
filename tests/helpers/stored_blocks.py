"""Random blocks of every type that GGUF files hold."""

from __future__ import annotations

import numpy as np

from kernels.formats import BLOCKS
from kernels.weights import Stored

FLOATS = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ1_S": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}
"""Where the blocks of a type hold float16 numbers (ggml-common.h); other bytes may take any value."""


def random_blocks(rng: np.random.Generator, type: str, rows: int, columns: int) -> Stored:
    """Random bytes as blocks, with sane float16 numbers where there are any."""
    values, width, *_ = BLOCKS[type]
    data = rng.integers(0, 256, (rows, columns // values, width), np.uint8)
    for at in FLOATS.get(type, ()):
        put(data, at, rng.standard_normal(data.shape[:2]) * 0.01)
    if type in ("F32", "F16", "BF16"):  # without the top bit of the exponent it is finite
        data[..., -1] &= 0xBF
    if type == "MXFP4":  # a power of two
        data[..., 0] = rng.integers(110, 125, data.shape[:2])
    if type == "NVFP4":  # four scales of eight bits, those without meaning among them
        data[..., :4] = rng.integers(0, 80, (*data.shape[:2], 4))
        data[..., 0, 0] = 0x7F
    if type == "IQ1_M":  # four bits of its number in each of four places
        halves = (np.abs(rng.standard_normal(data.shape[:2])) * 0.01).astype(np.float16).view(np.uint16)
        for i in range(4):
            high = data[..., 49 + 2 * i]
            high[:] = (high & 15) | ((halves >> 4 * i & 15) << 4).astype(np.uint8)
    return Stored(type, (rows, columns), data.reshape(rows, -1), "tensor 'w'")


def put(data: np.ndarray, at: int, numbers: np.ndarray) -> None:
    """float16 numbers at a byte offset of blocks [rows, blocks, bytes]."""
    data[..., at : at + 2] = numbers.astype(np.float16)[..., None].view(np.uint8)
