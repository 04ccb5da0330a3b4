"""A decoder's weights by role, as a backend holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kernels.interface import Experts, Handle

from .spec import Turning


class Linear(NamedTuple):
    """A placed matrix and what is added to the product."""

    matrix: Handle
    bias: Handle | None


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A gated feed-forward network; gate and up are blocks of rows of one matrix."""

    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Mixture:
    """A router, experts, and the network that all rows go through besides, if there is one.

    shared_router: where rows take of that network by a weight of their own; it is an expert then, the only
    one of its kind.
    router_norm, norm: of what the router and the experts take, if that is not what the network takes.
    post_norm, shared_post_norm: of what experts and network give, before the sum.
    """

    router: Linear
    experts: Experts
    shared: FeedForward | Experts | None
    shared_router: Linear | None = None
    router_norm: Handle | None = None
    norm: Handle | None = None
    post_norm: Handle | None = None
    shared_post_norm: Handle | None = None


@dataclass(frozen=True, slots=True)
class LayerInput:
    """How a layer takes what it gets of the tokens: gated by its rows, projected to their width, normed."""

    gate: Linear
    projection: Linear
    norm: Handle | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """What layers get of the tokens besides: [vocabulary, layers * input_columns], and of embedded tokens."""

    embedding: Handle
    projection: Handle
    norm: Handle


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Placed weights of one layer; q, k and v are blocks of rows of one matrix: those of them that it has.

    sinks: see `Operations.paged_attention`. attention_post_norm, mlp_post_norm: of what a block adds to the
    residual. input: None if the layer gets nothing of the tokens besides. scale: of the layer's result.
    """

    index: int
    qkv: Linear
    sinks: Handle | None
    output: Linear
    network: FeedForward | Mixture
    attention_norm: Handle | None
    q_norm: Handle | None
    k_norm: Handle | None
    v_norm: Handle | None
    attention_post_norm: Handle | None
    mlp_norm: Handle | None
    mlp_post_norm: Handle | None
    input: LayerInput | None
    scale: float


@dataclass(frozen=True, slots=True)
class Weights:
    """Placed weights of a model. head is the embedding's own handle where the two are tied.

    streamed_bytes: read by every step: all of them, but for what is read in parts: embedding tables but for
    one that is the head as well, the matrices of experts (expert_bytes), and rotation tables. rotations:
    filled by `place_rotations`.
    """

    embedding: Handle
    layers: tuple[LayerWeights, ...]
    norm: Handle
    head: Handle
    streamed_bytes: int
    expert_bytes: int = 0
    inputs: Inputs | None = None
    rotations: dict[Turning, Handle] = field(default_factory=dict)
