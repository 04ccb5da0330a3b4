"""Bytes a step moves, and what one token costs at batch 1.

Decode is limited by memory bandwidth, so bytes / peak is the floor of a step (roofline model, Williams et al.
2009).
"""

from __future__ import annotations

from typing import NamedTuple

from .models.spec import ModelSpec
from .step_plan import StepPlan


class Traffic(NamedTuple):
    """Bytes of one step: weights are read once, keys and values once a token.

    weight_bytes: read by every step (an untied embedding table is not: only its rows are, and neither are
    experts). expert_bytes: of all experts, of which a token goes through expert_share; a step says itself
    how much it read.
    kv_bytes_per_token: of all layers together. windows: of each layer, how many keys a query sees at most; a
    layer that sees all of them is not listed. layers: how many there are.
    """

    weight_bytes: int
    kv_bytes_per_token: int
    windows: tuple[int, ...] = ()
    layers: int = 1
    expert_bytes: int = 0
    expert_share: float = 0.0

    @classmethod
    def of(
        cls, spec: ModelSpec, weight_bytes: int, kv_bytes_per_token: int, expert_bytes: int = 0
    ) -> Traffic:
        """The traffic of a model."""
        known = tuple(layer.window for layer in spec.layers if layer.window is not None)
        share = spec.share_of_experts
        return cls(weight_bytes, kv_bytes_per_token, known, len(spec.layers), expert_bytes, share)

    @property
    def all_weight_bytes(self) -> int:
        """Those that steps read, all experts among them: what caches would have to hold."""
        return self.weight_bytes + self.expert_bytes

    def step_bytes(self, plan: StepPlan) -> int:
        """Weights that every step reads, keys and values read by the plan's runs, and those they write.

        The rows of a chunk read their common past once.
        """
        return self.weight_bytes + sum(self._kv_bytes(run.start, run.count) for run in plan.runs)

    def token_bytes(self, context: int = 0) -> int:
        """Bytes one token costs alone, with this many tokens before it; peak / this is the tok/s ceiling."""
        return self.weight_bytes + int(self.expert_bytes * self.expert_share) + self._kv_bytes(context, 1)

    def _kv_bytes(self, past: int, count: int) -> int:
        """Keys and values of `count` tokens written and read, and those of the tokens before them read."""
        in_layers = (self.layers - len(self.windows)) * (past + 2 * count)
        in_layers += sum(min(past, window - 1) + 2 * count for window in self.windows)
        return in_layers * self.kv_bytes_per_token // self.layers
