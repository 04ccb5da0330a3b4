"""The twin of the native backend: decoders in the arithmetic of `quantized.py`, for tests to compare bits."""

from __future__ import annotations

import numpy as np

from .. import sampling as rules
from ..arithmetic import exp32, gated, tanh32
from ..arrays import Float32, Int32
from ..cache_format import CacheShape
from ..interface import Experts, Forward, Gate, Inputs, RopeLayout, Rotation, Routing
from ..machine import free_memory
from ..program import Limits, StepOutput, WriteMask
from ..step import Step
from ..stored import canonical
from ..weights import Canonical, Weight, blocks_of_rows, dequantize
from .quantized import attend, lane_sum, product, route
from .quantized_cache import QuantizedCache


class QuantizedOperations:
    """`Operations` on the rows of one step; a matrix is the tuple of its parts."""

    def __init__(self, step: Step, cache: QuantizedCache | None) -> None:
        self._step = step
        self._cache = cache
        self._expert_bytes = 0

    def embedding(self, table: tuple[Canonical, ...], tokens: Int32) -> Float32:
        """Rows of the table."""
        rows: Float32 = np.concatenate([dequantize(part) for part in table])[tokens]
        return rows

    def rms_norm(self, x: Float32, weight: Float32, eps: float) -> Float32:
        """Root mean square norm of each run."""
        runs = x.reshape(len(x), -1, len(weight))
        mean = lane_sum(runs * runs) / np.float32(len(weight))
        inverse = np.float32(1) / np.sqrt(mean + np.float32(eps))
        normed: Float32 = runs * inverse[..., None] * weight
        return normed.reshape(x.shape)

    def linear(
        self, x: Float32, weight: tuple[Canonical, ...], bias: Float32 | None = None, *, planes: int = 1
    ) -> Float32:
        """The products of the parts side by side."""
        result = np.concatenate([product(x, part, planes) for part in weight], axis=1)
        return result if bias is None else result + bias

    def split(self, x: Float32, columns: tuple[int, ...]) -> tuple[Float32, ...]:
        """Parts side by side."""
        return tuple(np.split(x, np.cumsum(columns)[:-1], axis=1))

    def rope(
        self, x: Float32, positions: Int32, rotation: Rotation, *, head_dim: int | None = None
    ) -> Float32:
        """(a cos - b sin, b cos + a sin) of each pair."""
        cos, sin = rotation.cos[positions][:, None], rotation.sin[positions][:, None]
        half = cos.shape[-1]
        heads = x.reshape(len(x), -1, head_dim or 2 * half)
        out = heads.copy()
        low, high = (
            (slice(0, half), slice(half, 2 * half))
            if rotation.layout == "half"
            else (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        )
        a, b = heads[..., low], heads[..., high]
        out[..., low] = a * cos - b * sin
        out[..., high] = b * cos + a * sin
        return out.reshape(x.shape)

    def kv_write(self, layer: int, k: Float32, v: Float32, slots: Int32) -> None:
        """In the cache's format."""
        assert self._cache is not None
        self._cache.write(layer, k, v, slots)

    def paged_attention(
        self,
        layer: int,
        q: Float32,
        batch: Inputs,
        *,
        scale: float,
        window: int | None = None,
        cap: float | None = None,
        sinks: Float32 | None = None,
    ) -> Float32:
        """Row by row and key head by key head."""
        assert self._cache is not None
        (kv_heads, head_dim), size = self._cache.shape.layers[layer], self._cache.shape.block_size
        out = np.empty_like(q)
        for row, position in enumerate(self._step.positions):
            first = 0 if window is None else max(0, position - window + 1)
            at = np.arange(first, position + 1)
            blocks = self._step.block_tables[self._step.sequences[row]]
            slots = blocks[at // size] * size + at % size
            heads = q[row].reshape(kv_heads, -1, head_dim)
            of_heads = [None] * kv_heads if sinks is None else sinks.reshape(kv_heads, -1)
            mixed = []
            for h in range(kv_heads):
                keys, values = (self._cache.read(side, layer, h, slots) for side in (0, 1))
                mixed.append(attend(heads[h], keys, values, first, scale, cap or 0.0, of_heads[h]))
            out[row] = np.concatenate(mixed).reshape(-1)
        return out

    def gated(self, x: Float32, gate: Gate = "silu", up: Float32 | None = None) -> Float32:
        """By the functions of arithmetic.py."""
        first, second = np.split(x, 2, axis=1) if up is None else (x, up)
        with np.errstate(all="ignore"):
            return gated(gate, first, second, exp32)

    def experts(
        self, x: Float32, logits: Float32, experts: Experts, routing: Routing, gate: Gate = "silu"
    ) -> Float32:
        """Expert by expert, and the sums from the first choice on."""
        chosen, weights = route(logits, routing, experts.preference)
        if experts.scales is not None:
            weights = weights * experts.scales[chosen]
        results = np.empty((*chosen.shape, x.shape[1]), np.float32)
        for expert in np.unique(chosen):
            rows, ranks = np.nonzero(chosen == expert)
            gate_up, down = experts.gate_up[expert], experts.down[expert]
            biases = (
                None if bias is None else bias[expert] for bias in (experts.gate_up_bias, experts.down_bias)
            )
            hidden = self.gated(self.linear(x[rows], gate_up, next(biases)), gate)
            results[rows, ranks] = self.linear(hidden, down, next(biases))
            self._expert_bytes += sum(part.nbytes for part in (*gate_up, *down))
        results *= weights[..., None]
        total: Float32 = results[:, 0]
        for i in range(1, routing.used):
            total += results[:, i]
        return total

    def scale(self, x: Float32, factor: float) -> Float32:
        """Elementwise product."""
        return x * np.float32(factor)

    def cap(self, x: Float32, limit: float) -> Float32:
        """By the hyperbolic tangent of arithmetic.py."""
        with np.errstate(all="ignore"):
            return tanh32(x / np.float32(limit), exp32) * np.float32(limit)

    def center(self, x: Float32) -> Float32:
        """The mean by the sum of lanes."""
        mean: Float32 = lane_sum(x) / np.float32(x.shape[1])
        return x - mean[:, None]

    def add(self, a: Float32, b: Float32) -> Float32:
        """Elementwise sum."""
        return a + b

    def gather(self, x: Float32, rows: Int32) -> Float32:
        """Rows by number."""
        return x[rows]

    def sample(self, logits: Float32, sampling: Step) -> StepOutput:
        """The rules of kernels/sampling.py."""
        return StepOutput(rules.sample(logits, sampling), logits, self._expert_bytes)


class QuantizedBackend:
    """The part of `Backend` that decoders need, on numpy arrays."""

    name = "quantized"
    replaced = ()
    working_bytes = 0
    device = "cpu"
    exact = True
    shares_arrays = True

    def __init__(self) -> None:
        self.cache: QuantizedCache | None = None
        self.weight_bytes = 0

    @property
    def cache_bytes(self) -> int:
        """Bytes of the KV cache."""
        return 0 if self.cache is None else self.cache.nbytes

    def place_matrix(self, *parts: Weight) -> tuple[Canonical, ...]:
        """The parts as they are, in blocks of one form each."""
        placed = tuple(block for part in parts for block in blocks_of_rows(canonical(part)))
        self.weight_bytes += sum(block.nbytes for block in placed)
        return placed

    def place_vector(self, values: Float32) -> Float32:
        """The values as they are."""
        return values

    def place_rotation(self, cos: Float32, sin: Float32, layout: RopeLayout) -> Rotation:
        """The tables as they are."""
        return Rotation(cos, sin, layout)

    def free_bytes(self) -> int:
        """Bytes of main memory that can be taken now."""
        return free_memory()

    def allocate_cache(self, shape: CacheShape) -> None:
        """Make the KV memory, zeroed."""
        self.cache = QuantizedCache(shape)

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Copy whole blocks."""
        assert self.cache is not None
        self.cache.copy_blocks(sources, targets)

    def capture(self, forward: Forward, limits: Limits) -> QuantizedProgram:
        """The program calls the forward each step."""
        return QuantizedProgram(self, forward)

    def read_bandwidth(self, nbytes: int) -> float:
        """Not measured: nothing here is meant to be fast."""
        return 0.0

    def close(self) -> None:
        """Free the KV cache."""
        self.cache = None


class QuantizedProgram:
    """A forward that is run anew each step."""

    def __init__(self, backend: QuantizedBackend, forward: Forward) -> None:
        self._backend = backend
        self._forward = forward

    def launch(self, step: Step, *, logits: bool = False, write_mask: WriteMask | None = None) -> StepOutput:
        """Compute a step, at once."""
        if write_mask is not None:
            write_mask()
        operations = QuantizedOperations(step, self._backend.cache)
        rows = step.tokens, step.positions, step.slots, step.sequences
        inputs = Inputs(*rows, step.block_tables, step.sample_rows, step)
        result = self._forward(operations, inputs)
        assert isinstance(result, StepOutput), "a forward returns what sample returned"
        return result if logits else StepOutput(result.tokens, None, result.expert_bytes)
