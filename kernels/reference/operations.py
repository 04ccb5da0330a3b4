"""The operations of a decoder, computed at once.

Every elementwise step is a torch operation that rounds once. The fused and the transcendental ones (addcmul,
exp, silu, softmax) and torch's sums round by vector width, position or thread count, so they are not used.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from .. import sampling as rules
from ..arithmetic import gated, tanh32
from ..cache_format import CachedLayer
from ..interface import Experts, Gate, Inputs, Rotation, Routing
from ..program import StepOutput, WriteMask
from ..step import Step, layout
from .attention import attend
from .cache import PagedCache
from .experts import mixture
from .linear import linear
from .numerics import exp, tree_sum
from .work import Work, work_of


class ReferenceOperations:
    """`Operations` on the rows of one step; values are float32 tensors."""

    def __init__(
        self,
        step: Step,
        cache: PagedCache | None,
        device: torch.device,
        write_mask: WriteMask | None = None,
    ) -> None:
        """write_mask: called before the step's samples are drawn."""
        self._step = step
        self._write_mask = write_mask
        self._cache = cache
        self._device = device
        self._lines: dict[int, Tensor] = {}
        self._expert_bytes = 0
        self._works: dict[tuple[CachedLayer, int, int | None], list[Work]] = {}

    def inputs(self) -> Inputs:
        """The arrays of the step as int32 tensors on the device, which takes one transfer."""
        memory = torch.from_numpy(self._step.memory).to(self._device)
        tensors = {
            place.name: memory[place.begin : place.end].view(torch.int32).reshape(place.shape)
            for place in layout(self._step.counts)
            if place.dtype == np.int32
        }
        names = [field.name for field in fields(Inputs) if field.name != "sampling"]
        return Inputs(**{name: tensors[name] for name in names}, sampling=self._step)

    def embedding(self, table: Tensor, tokens: Tensor) -> Tensor:
        """Rows of the table, widened to float32."""
        return table.index_select(0, tokens).float()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root mean square norm (arXiv 1910.07467); the squares are added by `tree_sum`."""
        runs = x.view(len(x), x.shape[1] // len(weight), len(weight))
        mean = tree_sum(runs * runs) * (1 / len(weight))
        return (runs / (mean + eps).sqrt() * weight).flatten(1)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, planes: int = 1) -> Tensor:
        """Product in tiles of rows; activations are not quantized here, so `planes` changes nothing."""
        product = linear(x, weight)
        return product if bias is None else product + bias

    def split(self, x: Tensor, columns: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Views of the columns."""
        ends = np.cumsum(columns).tolist()
        return tuple(x.narrow(1, end - width, width) for width, end in zip(columns, ends, strict=True))

    def rope(
        self, x: Tensor, positions: Tensor, rotation: Rotation, *, head_dim: int | None = None
    ) -> Tensor:
        """Each pair (a, b) becomes (a cos - b sin, b cos + a sin)."""
        cos, sin = (table.index_select(0, positions)[:, None] for table in (rotation.cos, rotation.sin))
        half = cos.shape[-1]
        shape, axis = ((2, half), 2) if rotation.layout == "half" else ((half, 2), 3)
        heads = x.view(len(x), -1, head_dim or 2 * half)
        turning, still = heads[..., : 2 * half], heads[..., 2 * half :]
        a, b = turning.reshape(*heads.shape[:2], *shape).unbind(axis)
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), axis).flatten(2)
        return torch.cat((turned, still), 2).flatten(1)

    def kv_write(self, layer: int, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Store in the cache's dtype, rounded to nearest even."""
        assert self._cache is not None, "the KV cache is allocated before the first step"
        kv_heads = self._cache.shape.layers[layer].kv_heads
        if kv_heads not in self._lines:
            self._lines[kv_heads] = self._cache.lines(slots, kv_heads)
        self._cache.write(layer, k, v, self._lines[kv_heads])

    def paged_attention(
        self,
        layer: int,
        q: Tensor,
        batch: Inputs,
        *,
        scale: float,
        window: int | None = None,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """In the order that attention.py fixes; divided on the host once a step and kind of layer."""
        assert self._cache is not None, "the KV cache is allocated before the first step"
        own = self._cache.shape.layers[layer]
        kind = own, q.shape[1] // own.head_dim, window
        if kind not in self._works:
            self._works[kind] = work_of(self._step, self._cache, *kind, self._device)
        return attend(self._cache, layer, q, self._works[kind], scale, cap, sinks)

    def gated(self, x: Tensor, gate: Gate = "silu", up: Tensor | None = None) -> Tensor:
        """By the functions of arithmetic.py."""
        first, second = x.chunk(2, dim=1) if up is None else (x, up)
        return gated(gate, first, second, exp)

    def experts(
        self, x: Tensor, logits: Tensor, experts: Experts, routing: Routing, gate: Gate = "silu"
    ) -> Tensor:
        """Expert by expert; which rows those are is looked at on the host."""
        result, nbytes = mixture(x, logits, experts, routing, gate)
        self._expert_bytes += nbytes
        return result

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """Elementwise product."""
        return x * factor

    def cap(self, x: Tensor, limit: float) -> Tensor:
        """By the hyperbolic tangent of arithmetic.py."""
        return tanh32(x / limit, exp) * limit

    def center(self, x: Tensor) -> Tensor:
        """The mean by `tree_sum`."""
        return x - tree_sum(x) * (1 / x.shape[1])

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Elementwise sum."""
        return a + b

    def gather(self, x: Tensor, rows: Tensor) -> Tensor:
        """Rows by number."""
        return x.index_select(0, rows)

    def nothing(self) -> StepOutput:
        """What a forward returns that samples nothing: a part of one. It has read experts all the same."""
        return StepOutput(np.empty(0, np.int32), None, self._expert_bytes)

    def sample(self, logits: Tensor, sampling: Step) -> StepOutput:
        """Drawn on the host by the rules of kernels/sampling.py."""
        if self._write_mask is not None:
            self._write_mask()  # a GPU may still be at the logits
        scores = logits.cpu().numpy()
        return StepOutput(rules.sample(scores, sampling), scores, self._expert_bytes)
