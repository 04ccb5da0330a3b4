"""Factors of NVFP4 matrices in GGUF files: NAME.scale beside NAME.weight, a number, or one for each expert.

NAME.input_scale, for hardware that rounds activations to four bits as well, changes nothing here.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np

from ..models.tensor_specs import TensorSpec
from .fields import shown
from .stored import StoredTensor, to_vector


class Beside(NamedTuple):
    """Names of what belongs to a matrix, were it there."""

    factor: str
    of_inputs: str


def beside(spec: TensorSpec, tensor: object, own: Set[str]) -> Beside | None:
    """None if nothing can belong to it. own: names that have a meaning of their own in this model."""
    stem = spec.stored_name.removesuffix(".weight")
    names = Beside(f"{stem}.scale", f"{stem}.input_scale")
    nvfp4 = isinstance(tensor, StoredTensor) and tensor.type == "NVFP4"
    return names if nvfp4 and stem != spec.stored_name and names.factor not in own else None


def factor_of(spec: TensorSpec, tensor: object) -> float:
    """Of the matrix that is `spec`, by the tensor of factors. ValueError, naming it: it holds none."""
    assert isinstance(tensor, StoredTensor), "a GGUF file has no others"
    count, rows = spec.stored_shape[:2] if len(spec.stored_shape) == 3 else (1, spec.stored_shape[0])
    if tensor.shape != (count,) or tensor.type != "F32":
        raise ValueError(
            f"tensor {shown(tensor.name)} has the shape {tensor.shape} and type {tensor.type}; ({count},) of "
            "F32 is needed"
        )
    return float(np.float32(to_vector(tensor).values[spec.first_row // rows if count > 1 else 0]))
