"""What a model looks like, declared as data: one spec serves one decoder for every family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernels.interface import Gate, RopeLayout

RopeScalingKind = Literal["none", "linear", "llama3", "yarn", "factors"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding: base and layout, and how the frequencies are stretched for long contexts.

    columns: the first columns of a head, which rotate; None: all. factor: stretch. original_context: tokens
    the model was first trained for. low_factor, high_factor: llama3 band edges. beta_fast, beta_slow,
    attention_factor: yarn (arXiv 2309.00071). factors: a divisor for each pair of columns.
    """

    base: float = 10000.0
    layout: RopeLayout = "half"
    columns: int | None = None
    scaling: RopeScalingKind = "none"
    factor: float = 1.0
    original_context: int = 0
    low_factor: float = 1.0
    high_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What may differ between the layers of a model.

    window: keys a query sees at most (sliding window), None for all. rope: None for a layer that does not
    rotate.
    """

    window: int | None = None
    rope: RopeSpec | None = RopeSpec()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Sizes and variants of one decoder-only transformer.

    gate: of the feed-forward network. attention_scale: of the scores, None for 1 / sqrt(head_dim). score_cap,
    logit_cap: bounds that scores and logits approach, by a hyperbolic tangent. embedding_scale: of embedded
    tokens. residual_scale: of what each block adds. head_scale: of the logits, before their cap.
    """

    architecture: str
    layers: tuple[LayerSpec, ...]
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    context_length: int
    norm_eps: float
    gate: Gate = "silu"
    attention_scale: float | None = None
    score_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    head_scale: float = 1.0

    @property
    def q_columns(self) -> int:
        """Columns of the queries of a row."""
        return self.heads * self.head_dim

    @property
    def kv_columns(self) -> int:
        """Columns of the keys (or values) of a row."""
        return self.kv_heads * self.head_dim

    @property
    def ropes(self) -> tuple[RopeSpec, ...]:
        """The different rotations of its layers."""
        return tuple(dict.fromkeys(layer.rope for layer in self.layers if layer.rope is not None))
