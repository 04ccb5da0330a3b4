"""A decoder's weights by role, as a loader gives them and as a backend holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from kernels.interface import Backend, Float32, Handle
from kernels.weights import Plain, Weight

from .rope import Rotations
from .spec import ModelSpec, RopeSpec


class Tensors(Protocol):
    """Where a checkpoint's tensors come from, by canonical name. Their shapes are those of the specification,
    and what must be there is there (see `loading.tensors.bind`).

    Names: embedding, norm, head; and for layer i: i.ROLE, where the roles are q, k, v, output, gate, up and
    down, each of these with _bias behind it, attention_norm, q_norm, k_norm, attention_post_norm, mlp_norm
    and mlp_post_norm.
    """

    def has(self, name: str) -> bool:
        """Whether the file has this tensor."""

    def get(self, name: str) -> Weight | None:
        """The tensor in canonical form (matrices quantized as asked for), or None if the file has none."""


class Linear(NamedTuple):
    """A placed matrix and what is added to the product."""

    matrix: Handle
    bias: Handle | None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Placed weights of one layer; qkv and gate_up are blocks of rows of one matrix.

    attention_post_norm, mlp_post_norm: of what a block adds to the residual.
    """

    index: int
    qkv: Linear
    output: Linear
    gate_up: Linear
    down: Linear
    attention_norm: Handle | None
    q_norm: Handle | None
    k_norm: Handle | None
    attention_post_norm: Handle | None
    mlp_norm: Handle | None
    mlp_post_norm: Handle | None


@dataclass(frozen=True, slots=True)
class Weights:
    """Placed weights of a model. head is the embedding's own handle where the two are tied.

    streamed_bytes: read by every step: all of them, but for what is read in parts: an embedding table that is
    not the head as well, and rotation tables. rotations: filled by `place_rotations`.
    """

    embedding: Handle
    layers: tuple[LayerWeights, ...]
    norm: Handle
    head: Handle
    streamed_bytes: int
    rotations: dict[RopeSpec, Handle] = field(default_factory=dict)


def _vector(tensors: Tensors, name: str) -> Float32 | None:
    weight = tensors.get(name)
    if weight is None:
        return None
    assert isinstance(weight, Plain), name
    assert weight.format == "f32", name
    return np.ascontiguousarray(weight.values, np.float32)


def _matrix(tensors: Tensors, name: str) -> Weight:
    weight = tensors.get(name)
    assert weight is not None, name
    return weight


def place(spec: ModelSpec, tensors: Tensors, backend: Backend) -> Weights:
    """All that a decoder needs, for every position the model was made for. EngineError as `place_tensors`."""
    weights = place_tensors(spec, tensors, backend)
    place_rotations(spec, weights, backend, spec.context_length).reach(spec.context_length)
    return weights


def place_rotations(spec: ModelSpec, weights: Weights, backend: Backend, positions: int) -> Rotations:
    """Give the weights rotation tables of so many positions, and return these."""
    rotations = Rotations(spec, positions)
    if not backend.shares_arrays:
        rotations.reach(positions)
    for rope, tables in rotations.tables.items():
        weights.rotations[rope] = backend.place_rotation(tables.cos, tables.sin, rope.layout)
    return rotations


def place_tensors(spec: ModelSpec, tensors: Tensors, backend: Backend) -> Weights:
    """Hand every tensor to the backend, layer by layer, so that at most one layer is in two forms at a time.

    Values that can't be held: ValueError naming the tensor, EngineError(model_invalid) if `get` finds them.
    """

    def vector(name: str) -> Handle | None:
        values = _vector(tensors, name)
        return None if values is None else backend.place_vector(values)

    def linear(layer: int, columns: int, rows: Mapping[str, int]) -> Linear:
        parts = {role: _matrix(tensors, f"{layer}.{role}") for role in rows}
        assert all(part.shape == (rows[role], columns) for role, part in parts.items()), (layer, rows)
        biases = {role: _vector(tensors, f"{layer}.{role}_bias") for role in rows}
        matrix = backend.place_matrix(*parts.values())
        if all(bias is None for bias in biases.values()):
            return Linear(matrix, None)
        filled = [np.zeros(rows[role], np.float32) if b is None else b for role, b in biases.items()]
        return Linear(matrix, backend.place_vector(np.concatenate(filled)))

    before = backend.weight_bytes
    embedding = backend.place_matrix(_matrix(tensors, "embedding"))
    head, not_streamed = embedding, 0
    if tensors.has("head"):
        not_streamed = backend.weight_bytes - before
        head = backend.place_matrix(_matrix(tensors, "head"))
    kv, ff = spec.kv_columns, spec.feed_forward
    layers = tuple(
        LayerWeights(
            index=i,
            attention_norm=vector(f"{i}.attention_norm"),
            qkv=linear(i, spec.width, {"q": spec.q_columns, "k": kv, "v": kv}),
            q_norm=vector(f"{i}.q_norm"),
            k_norm=vector(f"{i}.k_norm"),
            output=linear(i, spec.q_columns, {"output": spec.width}),
            attention_post_norm=vector(f"{i}.attention_post_norm"),
            mlp_norm=vector(f"{i}.mlp_norm"),
            gate_up=linear(i, spec.width, {"gate": ff, "up": ff}),
            down=linear(i, ff, {"down": spec.width}),
            mlp_post_norm=vector(f"{i}.mlp_post_norm"),
        )
        for i in range(len(spec.layers))
    )
    norm = vector("norm")
    return Weights(embedding, layers, norm, head, backend.weight_bytes - not_streamed)
