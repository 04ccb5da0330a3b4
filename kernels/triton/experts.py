"""Mixtures of experts: routing, and each expert for the rows that chose it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..interface import Experts, Gate, Routing
from ..reference import experts as reference


class Mixed(NamedTuple):
    """Results of all rows [rows, width], and bytes of the experts that were read: int64 [1] on the device."""

    rows: Tensor
    expert_bytes: Tensor


def mixture(x: Tensor, logits: Tensor, experts: Experts, routing: Routing, gate: Gate) -> Mixed:
    """`Operations.experts`."""
    plain = experts._replace(
        gate_up=tuple(matrix.values for matrix in experts.gate_up),
        down=tuple(matrix.values for matrix in experts.down),
    )
    rows, nbytes = reference.mixture(x, logits, plain, routing, gate)
    return Mixed(rows, torch.tensor([nbytes], device=x.device))
