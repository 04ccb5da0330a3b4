"""The operations of a decoder on a CUDA GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..interface import Experts, Gate, Inputs, Rotation, Routing
from ..step import Step
from .batch import Batch
from .cache import Cache
from .kernel import Function
from .rope import Turn
from .sampler import Rules


@dataclass(slots=True)
class Sum:
    """A sum that may not be computed yet: a norm that follows does both in one go."""

    a: Tensor
    b: Tensor
    value: Tensor | None = None


@dataclass(slots=True)
class Turned:
    """Heads that may not have turned yet: keys do so on their way into the cache."""

    x: Tensor
    turn: Turn
    value: Tensor | None = None


@dataclass(slots=True)
class Bounds:
    """What tokens, positions and tokens of samplers stay below in a program, as far as it is known."""

    tokens: int = 1 << 30
    positions: int = 1 << 30
    vocabulary: int = 1 << 30

    def narrow(self, name: str, bound: int, step: Step) -> None:
        """A table has so many rows, logits have so many columns: where that is news, the step is checked."""
        if bound < getattr(self, name):
            setattr(self, name, bound)
            self.check(step)

    def check(self, step: Step) -> None:
        """ValueError: a step points outside of tables."""
        for name, values, bound in (
            ("token", step.tokens, self.tokens),
            ("position", step.positions, self.positions),
            ("seen token", step.seen_ids, self.vocabulary),
            ("biased token", step.bias_ids, self.vocabulary),
        ):
            if len(values) and not 0 <= int(values.min()) <= int(values.max()) < bound:
                raise ValueError(f"a {name} of the step is not from 0 to {bound - 1}")


class Output(NamedTuple):
    """What a forward leaves on the device: int32 [samples], float32 [samples, vocabulary], int64 [1]."""

    tokens: Tensor
    logits: Tensor
    expert_bytes: Tensor


class TritonOperations:
    """`Operations` on the rows of a batch. Values are float32 tensors, or such that are not computed yet.

    use: the functions that compute, by the names of kernels.
    """

    def __init__(
        self,
        use: Mapping[str, Function],
        batch: Batch,
        cache: Cache | None,
        rules: Rules | None,
        bounds: Bounds,
    ) -> None:
        """rules: what the sampler follows; None: it is not called, as its mask is not there yet. bounds: gets
        narrower as tables are used.
        """
        self._use = use
        self._batch = batch
        self._cache = cache
        self._rules = rules
        self._bounds = bounds
        self._expert_bytes = torch.zeros(1, dtype=torch.int64, device=batch.memory.device)

    def tensor(self, value: Any) -> Tensor:
        """A value, computed now if it isn't yet."""
        if isinstance(value, Tensor):
            return value
        if value.value is None:
            if isinstance(value, Sum):
                value.value = self._use["add"](value.a, value.b)
            else:
                turn = value.turn
                value.value = self._use["rope"](value.x, turn.positions, turn.rotation, turn.dim)
        return value.value

    def embedding(self, table: Any, tokens: Tensor) -> Tensor:
        """Rows of a placed matrix."""
        if (
            tokens.data_ptr() == self._batch.array("tokens").data_ptr()
        ):  # else they are others than the step's
            self._bounds.narrow("tokens", table.shape[0], self._batch.step)
        return self._use["embedding"](table, tokens)  # type: ignore[no-any-return]

    def rms_norm(self, x: Any, weight: Tensor, eps: float) -> Tensor:
        """Root mean square norm, of a sum together with that."""
        if isinstance(x, Sum) and x.value is None and len(weight) == x.a.shape[1]:
            x.value, normed = self._use["add_norm"](x.a, x.b, weight, eps)
            return normed  # type: ignore[no-any-return]
        return self._use["rms_norm"](self.tensor(x), weight, eps)  # type: ignore[no-any-return]

    def linear(self, x: Any, weight: Any, bias: Tensor | None = None, *, planes: int = 1) -> Tensor:
        """Product with a placed matrix."""
        return self._use["linear"](self.tensor(x), weight, bias, planes)  # type: ignore[no-any-return]

    def split(self, x: Any, columns: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Views of the columns."""
        ends = np.cumsum(columns).tolist()
        values = self.tensor(x)
        return tuple(values.narrow(1, end - width, width) for width, end in zip(columns, ends, strict=True))

    def rope(self, x: Any, positions: Tensor, rotation: Rotation, *, head_dim: int | None = None) -> Turned:
        """Computed when it is known what for."""
        self._bounds.narrow("positions", len(rotation.cos), self._batch.step)
        dim = head_dim or 2 * rotation.cos.shape[1]
        return Turned(self.tensor(x), Turn(positions, rotation, dim))

    def kv_write(self, layer: int, k: Any, v: Any, slots: Tensor) -> None:
        """Store in the cache's format; keys that have yet to turn do so on the way."""
        turning = isinstance(k, Turned) and k.value is None
        keys, turn = (k.x, k.turn) if turning else (self.tensor(k), None)
        self._use["kv_write"](self._cache, layer, keys, self.tensor(v), slots, turn)

    def paged_attention(
        self,
        layer: int,
        q: Any,
        batch: Inputs,
        *,
        scale: float,
        window: int | None = None,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """By the work that the host has divided."""
        queries = self.tensor(q)
        return self._use["attention"](  # type: ignore[no-any-return]
            queries, self._cache, layer, self._batch, scale, window, cap, sinks
        )

    def gated(self, x: Any, gate: Gate = "silu", up: Any | None = None) -> Tensor:
        """The gate's activation times up."""
        other = None if up is None else self.tensor(up)
        return self._use["gated"](self.tensor(x), gate, other)  # type: ignore[no-any-return]

    def experts(self, x: Any, logits: Any, experts: Experts, routing: Routing, gate: Gate = "silu") -> Tensor:
        """Routed on the device; the bytes are added up there."""
        mixed = self._use["experts"](self.tensor(x), self.tensor(logits), experts, routing, gate)
        self._expert_bytes += mixed.expert_bytes
        return mixed.rows  # type: ignore[no-any-return]

    def scale(self, x: Any, factor: float) -> Tensor:
        """Elementwise product."""
        return self._use["scale"](self.tensor(x), factor)  # type: ignore[no-any-return]

    def cap(self, x: Any, limit: float) -> Tensor:
        """Elementwise limit."""
        return self._use["cap"](self.tensor(x), limit)  # type: ignore[no-any-return]

    def center(self, x: Any) -> Tensor:
        """Each row without its mean."""
        return self._use["center"](self.tensor(x))  # type: ignore[no-any-return]

    def add(self, a: Any, b: Any) -> Sum:
        """Computed when it is known what for."""
        return Sum(self.tensor(a), self.tensor(b))

    def gather(self, x: Any, rows: Tensor) -> Tensor:
        """Rows by number."""
        return self.tensor(x).index_select(0, rows)

    def nothing(self) -> Output:
        """What a forward returns that samples nothing: a part of one. It has read experts all the same."""
        return self._undrawn(torch.empty(0, 1, device=self._batch.memory.device))

    def sample(self, logits: Any, sampling: Batch) -> Output:
        """Drawn on the device."""
        scores = self.tensor(logits)
        self._bounds.narrow("vocabulary", scores.shape[1], self._batch.step)
        if self._rules is None:
            return self._undrawn(scores)
        return Output(self._use["sample"](scores, sampling, self._rules), scores, self._expert_bytes)

    def _undrawn(self, scores: Tensor) -> Output:
        none = torch.empty(0, dtype=torch.int32, device=scores.device)
        return Output(none, scores, self._expert_bytes)
