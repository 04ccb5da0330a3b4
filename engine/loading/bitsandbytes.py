"""bitsandbytes: rows of int8 with a scale each, and the 4 bits of QLoRA by blocks of 64.

Sources: Dettmers et al. 2022 (arXiv 2208.07339) and 2023 (arXiv 2305.14314); the tensors that transformers
saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .fields import Fields, invalid, shown
from .grouped import GroupedTensor, Rows
from .packed_words import padded, values_of
from .stored import StoredTensor


def join_int8(path: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The tensors, with each `NAME.SCB` and its weights as a matrix: value = int8 * SCB / 127."""
    bases = [name.removesuffix(".SCB") for name in tensors if name.endswith(".SCB")]
    taken = {base + part for base in bases for part in (".SCB", ".weight", ".weight_format")}
    joined: dict[str, Any] = {name: tensor for name, tensor in tensors.items() if name not in taken}
    for base in bases:
        joined[base + ".weight"] = _int8(path, base, tensors)
    return joined


def _int8(path: Path, base: str, tensors: Mapping[str, StoredTensor]) -> GroupedTensor:
    codes, scales = tensors.get(base + ".weight"), tensors[base + ".SCB"]
    if codes is None or codes.type != "I8" or len(codes.shape) != 2:
        raise invalid(path, f"tensor {shown(base)}.weight is not the int8 matrix that its SCB belongs to")
    if scales.type != "F32" or scales.shape != codes.shape[:1]:
        raise invalid(
            path, f"tensor {shown(base)}.SCB has the shape {scales.shape}; {codes.shape[:1]} is needed"
        )
    layout = tensors.get(base + ".weight_format")
    if layout is not None and layout.data.any():
        raise invalid(path, f"tensor {shown(base)}.weight_format: only rows in order are supported")
    rows, columns = codes.shape

    def read(part: slice) -> Rows:
        numbers = codes.data.view(np.int8).reshape(codes.shape)[part].astype(np.int16)
        return Rows(numbers, (values_of(scales) / np.float32(127))[part, None])

    sources = codes, scales
    return GroupedTensor(
        base + ".weight", (rows, columns), "bitsandbytes int8", -128, 127, padded(columns), sources, read
    )


def check_int8(config: Fields) -> None:
    """Refuse what is not int8. EngineError(model_invalid)."""
    if not config.boolean("load_in_8bit", default=False):
        config.fail("quant_method", "bitsandbytes of 4 bits is not supported; use a GGUF file")
