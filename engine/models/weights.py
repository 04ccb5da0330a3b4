"""A decoder's weights by role, as a loader gives them and as a backend holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from kernels.interface import Backend, Float32, Handle
from kernels.weights import Plain, Weight

from ..types import EngineError
from .rope import RotationTables
from .spec import ModelSpec


class Tensors(Protocol):
    """Where a checkpoint's tensors come from, by canonical name.

    Names: embedding, norm, head; and for layer i: i.attention_norm, i.q, i.k, i.v, i.q_bias, i.k_bias,
    i.v_bias, i.q_norm, i.k_norm, i.output, i.output_bias, i.mlp_norm, i.gate, i.up, i.down.
    """

    def has(self, name: str) -> bool:
        """Whether the file has this tensor."""

    def get(self, name: str) -> Weight | None:
        """The tensor in canonical form (matrices quantized as asked for), or None if the file has none."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Placed weights of one layer; qkv and gate_up are blocks of rows of one matrix."""

    index: int
    attention_norm: Handle
    qkv: Handle
    qkv_bias: Handle | None
    q_norm: Handle | None
    k_norm: Handle | None
    output: Handle
    output_bias: Handle | None
    mlp_norm: Handle
    gate_up: Handle
    down: Handle


class Weights(NamedTuple):
    """Placed weights of a model. head is the embedding's own handle where the two are tied.

    rotation: of `tables`, None until `place_rotation`. streamed_bytes: read by every step: all of them, but
    for what is read in parts: an embedding table that is not the head as well, and the tables.
    """

    embedding: Handle
    layers: tuple[LayerWeights, ...]
    norm: Handle
    head: Handle
    streamed_bytes: int
    rotation: Handle = None
    tables: RotationTables | None = None


def _vector(tensors: Tensors, name: str, length: int) -> Float32 | None:
    weight = tensors.get(name)
    if weight is None:
        return None
    if not isinstance(weight, Plain) or weight.shape != (length,):
        raise EngineError(
            "model_invalid", f"tensor {name}: expected {length} values, found shape {weight.shape}"
        )
    if weight.format == "bf16":
        return (weight.values.astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(weight.values, np.float32)


def _required_vector(tensors: Tensors, name: str, length: int) -> Float32:
    vector = _vector(tensors, name, length)
    if vector is None:
        raise EngineError("model_invalid", f"tensor {name} is missing")
    return vector


def _matrix(tensors: Tensors, name: str, rows: int, columns: int) -> Weight:
    weight = tensors.get(name)
    if weight is None:
        raise EngineError("model_invalid", f"tensor {name} is missing")
    if weight.shape != (rows, columns):
        raise EngineError("model_invalid", f"tensor {name}: expected {(rows, columns)}, found {weight.shape}")
    return weight


def _joined_bias(tensors: Tensors, names: tuple[str, ...], lengths: tuple[int, ...]) -> Float32 | None:
    """Biases side by side, zeros for a missing one; None if all are missing."""
    parts = [_vector(tensors, name, length) for name, length in zip(names, lengths, strict=True)]
    if all(part is None for part in parts):
        return None
    filled = [np.zeros(n, np.float32) if p is None else p for p, n in zip(parts, lengths, strict=True)]
    return np.concatenate(filled)


def place(spec: ModelSpec, tensors: Tensors, backend: Backend) -> Weights:
    """All that a decoder needs, for every position the model was made for. EngineError as `place_tensors`."""
    weights = place_rotation(spec, place_tensors(spec, tensors, backend), backend, spec.context_length)
    assert weights.tables is not None, "they were placed"
    weights.tables.reach(spec.context_length)
    return weights


def place_rotation(spec: ModelSpec, weights: Weights, backend: Backend, positions: int) -> Weights:
    """The weights with rotation tables of so many positions."""
    tables = RotationTables(spec.rope, spec.head_dim, positions)
    if not backend.shares_arrays:
        tables.reach(positions)
    rotation = backend.place_rotation(tables.cos, tables.sin, spec.rope.layout)
    return weights._replace(rotation=rotation, tables=tables)


def place_tensors(spec: ModelSpec, tensors: Tensors, backend: Backend) -> Weights:
    """Hand every tensor to the backend, layer by layer, so that at most one layer is in two forms at a time.

    Raises EngineError(model_invalid) naming the tensor.
    """

    def optional(values: Float32 | None) -> Handle | None:
        return None if values is None else backend.place_vector(values)

    def layers() -> Iterator[LayerWeights]:
        for i in range(spec.layers):
            columns = (spec.q_columns, spec.kv_columns, spec.kv_columns)
            qkv = [_matrix(tensors, f"{i}.{n}", c, spec.width) for n, c in zip("qkv", columns, strict=True)]
            biases = _joined_bias(tensors, (f"{i}.q_bias", f"{i}.k_bias", f"{i}.v_bias"), columns)
            head_norms = [
                _required_vector(tensors, f"{i}.{n}_norm", spec.head_dim) if spec.qk_norm else None
                for n in "qk"
            ]
            yield LayerWeights(
                index=i,
                attention_norm=backend.place_vector(
                    _required_vector(tensors, f"{i}.attention_norm", spec.width)
                ),
                qkv=backend.place_matrix(*qkv),
                qkv_bias=optional(biases),
                q_norm=optional(head_norms[0]),
                k_norm=optional(head_norms[1]),
                output=backend.place_matrix(_matrix(tensors, f"{i}.output", spec.width, spec.q_columns)),
                output_bias=optional(_vector(tensors, f"{i}.output_bias", spec.width)),
                mlp_norm=backend.place_vector(_required_vector(tensors, f"{i}.mlp_norm", spec.width)),
                gate_up=backend.place_matrix(
                    _matrix(tensors, f"{i}.gate", spec.feed_forward, spec.width),
                    _matrix(tensors, f"{i}.up", spec.feed_forward, spec.width),
                ),
                down=backend.place_matrix(_matrix(tensors, f"{i}.down", spec.width, spec.feed_forward)),
            )

    before = backend.weight_bytes
    embedding = backend.place_matrix(_matrix(tensors, "embedding", spec.vocabulary, spec.width))
    head, not_streamed = embedding, 0
    if tensors.has("head"):
        not_streamed = backend.weight_bytes - before
        head = backend.place_matrix(_matrix(tensors, "head", spec.vocabulary, spec.width))
    placed = tuple(layers())
    norm = backend.place_vector(_required_vector(tensors, "norm", spec.width))
    return Weights(
        embedding=embedding,
        layers=placed,
        norm=norm,
        head=head,
        streamed_bytes=backend.weight_bytes - not_streamed,
    )
