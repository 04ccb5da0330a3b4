"""The operations of a decoder on a CUDA GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from ..interface import Experts, Gate, Routing
from ..reference.cache import PagedCache
from ..reference.operations import ReferenceOperations
from ..step import Step
from .experts import mixture
from .linear import linear
from .matrix import Matrix, embedding


class TritonOperations(ReferenceOperations):
    """`Operations` on the rows of one step; values are float32 tensors."""

    def __init__(self, step: Step, cache: PagedCache | None, device: torch.device) -> None:
        super().__init__(step, cache, device)

    def embedding(self, table: Matrix, tokens: Tensor) -> Tensor:  # type: ignore[override]
        """Rows of a placed matrix."""
        return embedding(table, tokens)

    def linear(  # type: ignore[override]
        self, x: Tensor, weight: Matrix, bias: Tensor | None = None, *, planes: int = 1
    ) -> Tensor:
        """Activations are not quantized here, so `planes` changes nothing."""
        return linear(x, weight, bias)

    def experts(
        self, x: Tensor, logits: Tensor, experts: Experts, routing: Routing, gate: Gate = "silu"
    ) -> Tensor:
        """Routed on the device."""
        mixed = mixture(x, logits, experts, routing, gate)
        self._expert_bytes += int(mixed.expert_bytes.sum())
        return mixed.rows
