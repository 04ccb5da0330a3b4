"""What a model looks like, declared as data: one spec serves one decoder for every family."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from kernels.cache_format import CachedLayer
from kernels.interface import Gate, RopeLayout, Routing

RopeScalingKind = Literal["none", "linear", "llama3", "yarn", "factors", "longrope"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding: base and layout, and how the frequencies are stretched for long contexts.

    columns: the first columns of a head, which rotate; None: all. factor: stretch. original_context: tokens
    the model was first trained for. low_factor, high_factor: llama3 band edges. beta_fast, beta_slow: yarn
    (arXiv 2309.00071); truncated: its ramp ends on whole dimensions. attention_factor: of rotated queries and
    keys, None for the scaling's own. factors: a divisor for each pair of columns; short_factors: those of
    longrope for short contexts. temperature: queries at position p are multiplied by
    1 + temperature * ln(1 + floor(p / original_context)) besides, keys are not.
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
    truncated: bool = True
    attention_factor: float | None = None
    factors: tuple[float, ...] = ()
    short_factors: tuple[float, ...] = ()
    temperature: float = 0.0

    @property
    def of_keys(self) -> RopeSpec:
        """The rotation of keys, which have no temperature."""
        return replace(self, temperature=0.0) if self.temperature else self

    def turning(self, head_dim: int) -> Turning:
        """The rotation of heads with so many columns."""
        return Turning(self, self.columns or head_dim)

    def within(self, context: int) -> RopeSpec:
        """The rotation of a model that is run with so long a context.

        LongRoPE (arXiv 2402.13753) has factors for texts within the original context, and others for longer
        ones, which must be those of all keys and queries of a text. The length that a text is at would decide
        what its earlier tokens were, so a result would depend on what came in one piece; the length it may
        reach does not, and is what llama.cpp and vLLM go by.
        """
        if self.scaling != "longrope":
            return self
        factors = self.factors if context > self.original_context else self.short_factors
        return replace(self, scaling="factors", factors=factors, short_factors=())


class Turning(NamedTuple):
    """A rotation, and how many columns of a head turn: what tables of angles follow from."""

    rope: RopeSpec
    columns: int


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    """The mixture of experts of a layer: how many, columns inside each of them, and how a row chooses.

    shared: columns inside the network that all rows go through besides; 0 if there is none. scale: of the
    weights.
    """

    count: int
    hidden: int
    routing: Routing
    shared: int = 0
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What may differ between the layers of a model.

    window: keys a query sees at most (sliding window), None for all. rope: None for a layer that does not
    rotate. experts: None for a layer with a feed-forward network of its own. kv_heads, head_dim,
    feed_forward: None where they are the model's. shares: an earlier layer whose keys and values it reads,
    as it has none of its own; None if it has. keys_are_values: its values are the keys before their norm
    and rotation.
    """

    window: int | None = None
    rope: RopeSpec | None = RopeSpec()
    experts: ExpertsSpec | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    feed_forward: int | None = None
    shares: int | None = None
    keys_are_values: bool = False


class Sizes(NamedTuple):
    """Of one layer."""

    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int

    @property
    def q_columns(self) -> int:
        """Columns of the queries of a row."""
        return self.heads * self.head_dim

    @property
    def kv_columns(self) -> int:
        """Columns of the keys (or values) of a row."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Sizes and variants of one decoder-only transformer.

    kv_heads, head_dim, feed_forward: of layers that have none of their own (see `sizes`). gate: of the
    feed-forward network. attention_scale: of the scores, None for 1 / sqrt(head_dim). score_cap, logit_cap:
    bounds that scores and logits approach, by a hyperbolic tangent. centered: norms are of rows without
    their mean. parallel: both blocks of a layer take the same normed rows. rotated_norm: norms of queries and
    keys come behind their rotation. value_norm: heads of values are normed, without weights. input_columns:
    of what each layer gets of the tokens besides, 0 if that is nothing.
    embedding_scale: of embedded tokens. residual_scale: of what each block adds. head_scale: of the logits,
    before their cap.
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
    centered: bool = False
    parallel: bool = False
    rotated_norm: bool = False
    value_norm: bool = False
    input_columns: int = 0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    head_scale: float = 1.0

    @property
    def share_of_experts(self) -> float:
        """Which part of the experts' weights one token goes through; 0 for a model without experts."""
        mixtures = [layer.experts for layer in self.layers if layer.experts is not None]
        weights = sum(own.count * own.hidden for own in mixtures)
        return sum(own.routing.used * own.hidden for own in mixtures) / weights if weights else 0.0

    def sizes(self, layer: int) -> Sizes:
        """Those of a layer."""
        own = self.layers[layer]
        return Sizes(
            self.heads,
            own.kv_heads or self.kv_heads,
            own.head_dim or self.head_dim,
            own.feed_forward or self.feed_forward,
        )

    @property
    def cached(self) -> tuple[CachedLayer, ...]:
        """What the KV cache keeps, of each layer that has keys and values of its own."""
        own = (self.sizes(i) for i, layer in enumerate(self.layers) if layer.shares is None)
        return tuple(CachedLayer(sizes.kv_heads, sizes.head_dim) for sizes in own)

    def cache_layer(self, layer: int) -> int:
        """Where the keys and values that a layer reads are in the cache."""
        shares = self.layers[layer].shares
        before = self.layers[: layer if shares is None else shares]
        return sum(each.shares is None for each in before)

    @property
    def turnings(self) -> tuple[Turning, ...]:
        """What its layers rotate by, their queries and their keys."""
        of_layers = (
            each.turning(self.sizes(i).head_dim)
            for i, layer in enumerate(self.layers)
            if layer.rope is not None
            for each in (layer.rope, layer.rope.of_keys)
        )
        return tuple(dict.fromkeys(of_layers))

    @property
    def ropes(self) -> tuple[RopeSpec, ...]:
        """The different rotations of its layers, of queries and of keys."""
        of_layers = (layer.rope for layer in self.layers if layer.rope is not None)
        return tuple(dict.fromkeys(rope for each in of_layers for rope in (each, each.of_keys)))
