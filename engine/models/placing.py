"""A checkpoint's tensors on their way to a backend, which makes of them the weights of a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from kernels.arrays import Float32
from kernels.interface import Backend, Experts, Handle
from kernels.weights import Plain, Weight

from .rope import Rotations
from .spec import ExpertsSpec, ModelSpec
from .weights import FeedForward, Inputs, LayerInput, LayerWeights, Linear, Mixture, Weights


class Tensors(Protocol):
    """Where a checkpoint's tensors come from, by canonical name. Their shapes are those of the specification,
    and what must be there is there (see `loading.tensors.bind`).

    Names: embedding, norm, head; and for layer i: i.ROLE, where the roles are q, k, v, output, gate, up and
    down, each of these with _bias behind it, attention_norm, q_norm, k_norm, sinks, attention_post_norm,
    mlp_norm and mlp_post_norm. A layer with experts has router, shared_gate, shared_up and shared_down
    instead of gate, up and down, and i.ROLE.e of expert e: expert_gate, expert_up, expert_down, their biases;
    in some models router_norm, mixture_norm, mixture_post_norm, shared_post_norm, mixture_scales, preference
    and shared_router besides.
    In models whose layers get of the tokens besides: inputs_embedding, inputs_projection, inputs_norm, and of
    a layer input_gate, input_projection and input_norm. layer_scale: what a layer's result is multiplied by.
    """

    def has(self, name: str) -> bool:
        """Whether the file has this tensor."""

    def get(self, name: str) -> Weight | None:
        """The tensor in canonical form (matrices quantized as asked for), or None if the file has none."""


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
    for turning, tables in rotations.tables.items():
        layout = turning.rope.layout
        weights.rotations[turning] = backend.place_rotation(tables.cos, tables.sin, layout)
    return rotations


def place_tensors(
    spec: ModelSpec, tensors: Tensors, backend: Backend, *, first: bool = True, last: bool = True
) -> Weights:
    """Hand every tensor to the backend, layer by layer, so that at most one layer is in two forms at a time.

    first, last: whether these layers are the model's first, with the embedding before them, and its last,
    with the head behind them; what is not there is None.
    Values that can't be held: ValueError naming the tensor, EngineError(model_invalid) if `get` finds them.
    """
    placing = _Placing(spec, tensors, backend)
    before = backend.weight_bytes
    embedding = head = inputs = None
    if first:
        embedding = backend.place_matrix(_matrix(tensors, "embedding"))
    tied = last and not tensors.has("head")
    not_streamed = 0 if tied else backend.weight_bytes - before
    if last:
        head = embedding
        if embedding is None or not tied:
            head = backend.place_matrix(_matrix(tensors, "embedding" if tied else "head"))
    if first and spec.input_columns:
        before = backend.weight_bytes
        table = backend.place_matrix(_matrix(tensors, "inputs_embedding"))
        not_streamed += backend.weight_bytes - before
        projection = backend.place_matrix(_matrix(tensors, "inputs_projection"))
        inputs = Inputs(table, projection, placing.vector("inputs_norm"))
    layers = tuple(placing.layer(i) for i in range(len(spec.layers)))
    norm = placing.vector("norm") if last else None
    streamed = backend.weight_bytes - not_streamed - placing.expert_bytes
    return Weights(embedding, layers, norm, head, streamed, placing.expert_bytes, inputs)


class _Placing:
    """Tensors on their way to a backend. expert_bytes: of the matrices of experts that are there."""

    def __init__(self, spec: ModelSpec, tensors: Tensors, backend: Backend) -> None:
        self._spec = spec
        self._tensors = tensors
        self._backend = backend
        self.expert_bytes = 0

    def layer(self, i: int) -> LayerWeights:
        """All of a layer."""
        width, own, sizes = self._spec.width, self._spec.layers[i], self._spec.sizes(i)
        rows = {"q": sizes.q_columns, "k": sizes.kv_columns, "v": sizes.kv_columns}
        kinds = ("q",) if own.shares is not None else ("q", "k") if own.keys_are_values else ("q", "k", "v")
        v_norm = np.ones(sizes.head_dim, np.float32) if self._spec.value_norm and len(kinds) > 1 else None
        return LayerWeights(
            index=i,
            attention_norm=self.vector(f"{i}.attention_norm"),
            qkv=self._linear(f"{i}.", width, {kind: rows[kind] for kind in kinds}),
            sinks=self.vector(f"{i}.sinks"),
            q_norm=self.vector(f"{i}.q_norm"),
            k_norm=self.vector(f"{i}.k_norm"),
            v_norm=None if v_norm is None else self._backend.place_vector(v_norm),
            output=self._linear(f"{i}.", sizes.q_columns, {"output": width}),
            attention_post_norm=self.vector(f"{i}.attention_post_norm"),
            mlp_norm=self.vector(f"{i}.mlp_norm"),
            network=self._network(f"{i}.", sizes.feed_forward)
            if own.experts is None
            else self._mixture(f"{i}.", own.experts),
            mlp_post_norm=self.vector(f"{i}.mlp_post_norm"),
            input=self._input(f"{i}.") if self._spec.input_columns else None,
            scale=self._scale(f"{i}.layer_scale"),
        )

    def vector(self, name: str) -> Handle | None:
        """None if the file has none."""
        values = _vector(self._tensors, name)
        return None if values is None else self._backend.place_vector(values)

    def _input(self, prefix: str) -> LayerInput:
        width, columns = self._spec.width, self._spec.input_columns
        gate = self._linear(prefix, width, {"input_gate": columns})
        projection = self._linear(prefix, columns, {"input_projection": width})
        return LayerInput(gate, projection, self.vector(f"{prefix}input_norm"))

    def _scale(self, name: str) -> float:
        value = _vector(self._tensors, name)
        return 1.0 if value is None else float(value[0])

    def _linear(self, prefix: str, columns: int, rows: Mapping[str, int]) -> Linear:
        parts = {role: _matrix(self._tensors, prefix + role) for role in rows}
        assert all(part.shape == (rows[role], columns) for role, part in parts.items()), (prefix, rows)
        biases = {role: _vector(self._tensors, f"{prefix}{role}_bias") for role in rows}
        matrix = self._backend.place_matrix(*parts.values())
        if all(bias is None for bias in biases.values()):
            return Linear(matrix, None)
        filled = [np.zeros(rows[role], np.float32) if b is None else b for role, b in biases.items()]
        return Linear(matrix, self._backend.place_vector(np.concatenate(filled)))

    def _network(self, prefix: str, hidden: int) -> FeedForward:
        width = self._spec.width
        gate_up = self._linear(prefix, width, {f"{role}": hidden for role in ("gate", "up")})
        return FeedForward(gate_up, self._linear(prefix, hidden, {"down": width}))

    def _mixture(self, prefix: str, own: ExpertsSpec) -> Mixture:
        router = self._linear(prefix, self._spec.width, {"router": own.count})
        before = self._backend.weight_bytes
        gate_up, down = (
            tuple(
                self._backend.place_matrix(*(_matrix(self._tensors, f"{prefix}{role}.{e}") for role in roles))
                for e in range(own.count)
            )
            for roles in (("expert_gate", "expert_up"), ("expert_down",))
        )
        self.expert_bytes += self._backend.weight_bytes - before
        inward, outward = (
            self._expert_biases(prefix, own.count, roles)
            for roles in (("expert_gate_bias", "expert_up_bias"), ("expert_down_bias",))
        )
        scales = _vector(self._tensors, f"{prefix}mixture_scales")
        if own.scale != 1.0:
            scales = np.float32(own.scale) * (np.ones(own.count, np.float32) if scales is None else scales)
        experts = Experts(
            gate_up,
            down,
            inward,
            outward,
            None if scales is None else self._backend.place_vector(scales),
            self.vector(f"{prefix}preference"),
        )
        # What a router takes is made smaller by the root of its width: here that is part of its norm.
        router_norm = _vector(self._tensors, f"{prefix}router_norm")
        if router_norm is not None:
            router_norm = router_norm * np.float32(self._spec.width**-0.5)
        return Mixture(
            router,
            experts,
            *self._shared(f"{prefix}shared_", own.shared),
            None if router_norm is None else self._backend.place_vector(router_norm),
            *(
                self.vector(prefix + norm)
                for norm in ("mixture_norm", "mixture_post_norm", "shared_post_norm")
            ),
        )

    def _shared(self, prefix: str, hidden: int) -> tuple[FeedForward | Experts | None, Linear | None]:
        """The network that all rows go through, and its router if it has one."""
        if not hidden:
            return None, None
        if not self._tensors.has(f"{prefix}router"):
            return self._network(prefix, hidden), None
        router, before = self._linear(prefix, self._spec.width, {"router": 1}), self._backend.weight_bytes
        network = self._network(prefix, hidden)
        self.expert_bytes += self._backend.weight_bytes - before  # it counts among the experts that are read
        return Experts((network.gate_up.matrix,), (network.down.matrix,)), router

    def _expert_biases(self, prefix: str, count: int, roles: tuple[str, ...]) -> Handle | None:
        if not self._tensors.has(f"{prefix}{roles[0]}.0"):
            return None
        found = [_vector(self._tensors, f"{prefix}{role}.{e}") for e in range(count) for role in roles]
        values = [bias for bias in found if bias is not None]
        assert len(values) == len(found), (prefix, roles)
        return self._backend.place_vector(np.concatenate(values).reshape(count, -1))
