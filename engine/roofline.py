"""Bytes a step moves, and what one token costs at batch 1.

Decode is limited by memory bandwidth, so bytes / peak is the floor of a step (roofline model, Williams et al.
2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .models.spec import ModelSpec
from .step_plan import StepPlan


class Traffic(NamedTuple):
    """Bytes of one step: weights are read once, keys and values once a token.

    weight_bytes: read by every step (an untied embedding table is not: only its rows are, and neither are
    experts). expert_bytes: of all experts, of which a token goes through expert_share; a step says itself
    how much it read.
    kv_bytes_per_token: of all layers that see all keys. windows: of each other layer, how many keys a query
    sees at most, and the bytes of one. shared_bytes: of those in both, what layers read of a token that
    others have written.
    """

    weight_bytes: int
    kv_bytes_per_token: int
    windows: tuple[tuple[int, int], ...] = ()
    shared_bytes: int = 0
    expert_bytes: int = 0
    expert_share: float = 0.0

    @classmethod
    def of(cls, spec: ModelSpec, weight_bytes: int, cached: Sequence[int], expert_bytes: int = 0) -> Traffic:
        """The traffic of a model. cached: `CacheShape.layer_bytes`."""
        read = [(layer, cached[spec.cache_layer(i)]) for i, layer in enumerate(spec.layers)]
        return cls(
            weight_bytes,
            sum(nbytes for layer, nbytes in read if layer.window is None),
            tuple((layer.window, nbytes) for layer, nbytes in read if layer.window is not None),
            sum(nbytes for layer, nbytes in read if layer.shares is not None),
            expert_bytes,
            spec.share_of_experts,
        )

    @property
    def all_weight_bytes(self) -> int:
        """Those that steps read, all experts among them: what caches would have to hold."""
        return self.weight_bytes + self.expert_bytes

    @property
    def written_bytes(self) -> int:
        """Keys and values that a token has in the cache, in layers of every kind."""
        return self.kv_bytes_per_token + sum(nbytes for _, nbytes in self.windows) - self.shared_bytes

    def step_bytes(self, plan: StepPlan) -> int:
        """Weights that every step reads, keys and values read by the plan's runs, and those they write.

        The rows of a chunk read their common past once.
        """
        return self.weight_bytes + sum(self.kv_bytes(run.start, run.count) for run in plan.runs)

    def token_bytes(self, context: int = 0) -> int:
        """Bytes one token costs alone, with this many tokens before it; peak / this is the tok/s ceiling."""
        return self.weight_bytes + int(self.expert_bytes * self.expert_share) + self.kv_bytes(context, 1)

    def kv_bytes(self, past: int, count: int) -> int:
        """Keys and values of `count` tokens written and read, and those of the tokens before them read."""
        whole = self.kv_bytes_per_token * (past + 2 * count)
        near = sum(nbytes * (min(past, window - 1) + 2 * count) for window, nbytes in self.windows)
        return whole + near - self.shared_bytes * count
