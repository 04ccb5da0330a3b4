"""What a model looks like, declared as data: one spec serves one decoder for every family."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kernels.interface import RopeLayout

RopeScalingKind = Literal["none", "linear", "llama3", "yarn", "factors"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding: base and layout, and how the frequencies are stretched for long contexts.

    factor: stretch. original_context: tokens the model was first trained for.
    low_factor, high_factor: llama3 band edges. beta_fast, beta_slow, attention_factor: yarn (arXiv
    2309.00071).
    factors: a divisor for each of the head_dim / 2 frequencies.
    """

    base: float = 10000.0
    layout: RopeLayout = "half"
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
class ModelSpec:
    """Sizes and variants of one decoder-only transformer.

    window: keys a query sees at most (sliding window), None for all; window_layers: layers it applies to,
    None for every one. qk_norm: a norm on each query and key head (Qwen3).
    """

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    context_length: int
    norm_eps: float
    rope: RopeSpec = field(default_factory=RopeSpec)
    window: int | None = None
    window_layers: frozenset[int] | None = None
    qk_norm: bool = False

    @property
    def q_columns(self) -> int:
        """Columns of the queries of a row."""
        return self.heads * self.head_dim

    @property
    def kv_columns(self) -> int:
        """Columns of the keys (or values) of a row."""
        return self.kv_heads * self.head_dim

    def layer_window(self, layer: int) -> int | None:
        """The sliding window of one layer."""
        return self.window if self.window_layers is None or layer in self.window_layers else None
