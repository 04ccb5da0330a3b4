"""What a model asks of a machine: bytes it moves, operations it computes, memory it takes. Pure arithmetic.

Decode reads all weights for each token, prefill once for many; between them lies the whole roofline (Williams
et al. 2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kernels.cache_format import CacheShape
from kernels.formats import FORMATS

from .models.spec import ExpertsSpec, ModelSpec, Sizes
from .roofline import Traffic
from .types import EngineError

if TYPE_CHECKING:
    from .config import EngineConfig, Quantization
    from .loading.checkpoint import Checkpoint


class Step(NamedTuple):
    """What is moved and computed in one step: bytes, and operations (a product and a sum are two)."""

    nbytes: float
    operations: float

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.nbytes


@dataclass(frozen=True, slots=True)
class Workload:
    """A model in a format of its weights.

    weight_bytes: in memory; kv_bytes: of a token there. operations: for a token, without attention.
    attention: for each layer, the keys a query sees at most (None: all) and the columns of all query heads.
    packed: most weights have codes and scales. shape: a sentence on what was assumed of it, "" for nothing.
    """

    name: str
    quantization: str
    weight_bytes: int
    kv_bytes: int
    traffic: Traffic
    operations: float
    attention: tuple[tuple[int | None, int], ...]
    context_length: int
    block_size: int
    packed: bool
    shape: str = ""

    def decode(self, rows: int, context: int) -> Step:
        """A token for each of so many conversations, with so many tokens before it.

        Each row chooses experts of its own: of those that some row has chosen each is read once.
        """
        share = 1 - (1 - self.traffic.expert_share) ** rows
        nbytes = self._weights(share) + rows * self.traffic.kv_bytes(context, 1)
        return Step(nbytes, rows * (self.operations + self._attention(context)))

    def prefill(self, tokens: int) -> Step:
        """A prompt of so many tokens, all at once."""
        share = 1 - (1 - self.traffic.expert_share) ** tokens
        nbytes = self._weights(share) + self.traffic.kv_bytes(0, tokens)
        return Step(nbytes, tokens * (self.operations + self._attention(tokens / 2)))

    def memory(self, conversations: int, tokens: int) -> int:
        """Bytes of the weights and of so many conversations, each in whole blocks."""
        return self.weight_bytes + conversations * self.conversation_bytes(tokens)

    def conversation_bytes(self, tokens: int) -> int:
        """Bytes of the keys and values of a conversation."""
        return -(-tokens // self.block_size) * self.block_size * self.kv_bytes

    def _weights(self, share: float) -> float:
        """Bytes of the weights that a step reads. share: of those of the experts."""
        return self.traffic.weight_bytes + share * self.traffic.expert_bytes

    def _attention(self, context: float) -> float:
        seen = [min(context + 1, window or math.inf) * columns for window, columns in self.attention]
        return 4.0 * sum(seen)


def workload_of(checkpoint: Checkpoint, config: EngineConfig, context_length: int) -> Workload:
    """What the model of a checkpoint asks for, as it would be loaded."""
    spec, tensors = checkpoint.spec, checkpoint.tensors
    shape = CacheShape(spec.cached, 1, config.block_size, config.cache_format)
    experts = tensors.nbytes(experts=True)
    return Workload(
        name=checkpoint.name,
        quantization=tensors.label(),
        weight_bytes=tensors.nbytes(),
        kv_bytes=shape.bytes_per_token,
        traffic=Traffic.of(spec, tensors.streamed_bytes(), shape.layer_bytes, experts),
        operations=2.0 * _parameters(spec),
        attention=tuple((own.window, spec.sizes(i).q_columns) for i, own in enumerate(spec.layers)),
        context_length=context_length,
        block_size=config.block_size,
        packed=8 * tensors.nbytes() < 14 * tensors.parameters(),
    )


def _parameters(spec: ModelSpec) -> int:
    """Weights that one token is multiplied with: of the layers, of its experts, and of the head."""
    layers = sum(_layer(spec, spec.sizes(i), i) for i in range(len(spec.layers)))
    return layers + spec.width * spec.vocabulary


def _layer(spec: ModelSpec, sizes: Sizes, i: int) -> int:
    own = spec.layers[i]
    kinds = 0 if own.shares is not None else 1 if own.keys_are_values else 2
    attention = spec.width * (2 * sizes.q_columns + kinds * sizes.kv_columns)
    hidden = sizes.feed_forward if own.experts is None else _hidden(own.experts)
    router = 0 if own.experts is None else spec.width * own.experts.count
    return attention + 3 * spec.width * hidden + router


def _hidden(experts: ExpertsSpec) -> int:
    """Columns inside the networks that a row goes through."""
    return experts.routing.used * experts.hidden + experts.shared


class Shape(NamedTuple):
    """A published model: its parameters, layers, heads of keys, columns of a head, and of all query heads."""

    name: str
    parameters: float
    layers: int
    kv_heads: int
    head_dim: int
    q_columns: int
    context_length: int


SHAPES = (
    Shape("SmolLM2 135M", 0.135e9, 30, 3, 64, 576, 8192),
    Shape("SmolLM2 360M", 0.362e9, 32, 5, 64, 960, 8192),
    Shape("Llama 3.2 1B", 1.24e9, 16, 8, 64, 2048, 131072),
    Shape("Llama 3.2 3B", 3.21e9, 28, 8, 128, 3072, 131072),
    Shape("Llama 2 7B", 6.74e9, 32, 32, 128, 4096, 4096),
    Shape("Llama 3.1 8B", 8.03e9, 32, 8, 128, 4096, 131072),
    Shape("Llama 2 13B", 13.0e9, 40, 40, 128, 5120, 4096),
    Shape("Qwen 2.5 14B", 14.8e9, 48, 8, 128, 5120, 131072),
    Shape("Qwen 2.5 32B", 32.8e9, 64, 8, 128, 5120, 131072),
    Shape("Llama 3.1 70B", 70.6e9, 80, 8, 128, 8192, 131072),
    Shape("Llama 3.1 405B", 405.9e9, 126, 8, 128, 16384, 131072),
)

LEAST, MOST = 1e6, 1e13
"""Parameters of a model that a plan is made for."""

_FORMATS = {"none": "bf16", "auto": "bf16", "int8": "q8", "int4": "q4", "nf4": "nf4"}


def workload_sized(
    parameters: float, quantization: Quantization, kv_format: str, block_size: int = 32
) -> Workload:
    """What a dense model of so many parameters asks for, if it is shaped as the published one of the nearest
    size. EngineError(invalid_request): no model has so many.
    """
    if not LEAST <= parameters <= MOST:
        raise EngineError("invalid_request", "the number of parameters must be in [1M, 10T]")
    like = min(SHAPES, key=lambda shape: abs(math.log(shape.parameters / parameters)))
    layers = max(1, round(like.layers * (parameters / like.parameters) ** (1 / 3)))
    same = abs(math.log(parameters / like.parameters)) < 0.35
    layers = like.layers if same else layers
    cache = CacheShape.alike(layers, 1, block_size, like.kv_heads, like.head_dim, kv_format)
    nbytes = FORMATS[_FORMATS[quantization]].nbytes((round(parameters / 4096), 4096))
    return Workload(
        name=f"{_short(parameters)} parameters",
        quantization={"none": "BF16", "auto": "BF16"}.get(quantization, quantization),
        weight_bytes=nbytes,
        kv_bytes=cache.bytes_per_token,
        traffic=Traffic(nbytes, cache.bytes_per_token),
        operations=2.0 * parameters,
        attention=((None, like.q_columns),) * layers,
        context_length=like.context_length,
        block_size=block_size,
        packed=FORMATS[_FORMATS[quantization]].packed,
        shape=f"keys and values are taken to be as in {like.name}: {layers} layers, "
        f"{like.kv_heads} heads of {like.head_dim}",
    )


def _short(parameters: float) -> str:
    unit, word = next(pair for pair in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if parameters >= pair[0])
    return f"{parameters / unit:.4g}{word}"
