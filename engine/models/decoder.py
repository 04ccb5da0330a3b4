"""The one decoder: a transformer with rotary attention and a gated feed-forward network."""

from __future__ import annotations

from kernels.interface import Handle, Operations, Routing, Value
from kernels.interface import Inputs as Batch

from .spec import ModelSpec, RopeSpec, Sizes
from .weights import FeedForward, Inputs, LayerInput, LayerWeights, Mixture, Weights

_SHARED = Routing(1, "all", "sigmoid")
"""Of an expert that all rows choose."""


def attention(
    ops: Operations, spec: ModelSpec, weights: Weights, layer: LayerWeights, x: Value, batch: Batch
) -> Value:
    """Attention block of one layer on x [rows, width] -> [rows, width]."""
    own, sizes, at = spec.layers[layer.index], spec.sizes(layer.index), spec.cache_layer(layer.index)
    qkv = ops.linear(x, layer.qkv.matrix, layer.qkv.bias, planes=2)
    # A layer that shares has queries alone; where keys are values, those come once.
    kinds = 1 if own.shares is not None else 2 if own.keys_are_values else 3
    q, *kv = ops.split(qkv, (sizes.q_columns, *[sizes.kv_columns] * (kinds - 1)))
    q = _turned(ops, spec, weights, own.rope, sizes, q, layer.q_norm, batch)
    if kv:
        v = _norm(ops, spec, kv[-1], layer.v_norm)
        rope = None if own.rope is None else own.rope.of_keys
        k = _turned(ops, spec, weights, rope, sizes, kv[0], layer.k_norm, batch)
        ops.kv_write(at, k, v, batch.slots)
    scale = sizes.head_dim**-0.5 if spec.attention_scale is None else spec.attention_scale
    mixed = ops.paged_attention(
        at, q, batch, scale=scale, window=own.window, cap=spec.score_cap, sinks=layer.sinks
    )
    return ops.linear(mixed, layer.output.matrix, layer.output.bias)


def _turned(
    ops: Operations,
    spec: ModelSpec,
    weights: Weights,
    rope: RopeSpec | None,
    sizes: Sizes,
    x: Value,
    norm: Handle | None,
    batch: Batch,
) -> Value:
    """Queries or keys normed and rotated, in the model's order."""
    if spec.rotated_norm:
        return _norm(ops, spec, _rotated(ops, weights, rope, sizes, x, batch), norm)
    return _rotated(ops, weights, rope, sizes, _norm(ops, spec, x, norm), batch)


def _rotated(
    ops: Operations, weights: Weights, rope: RopeSpec | None, sizes: Sizes, x: Value, batch: Batch
) -> Value:
    if rope is None:
        return x
    rotation = weights.rotations[rope.turning(sizes.head_dim)]
    return ops.rope(x, batch.positions, rotation, head_dim=sizes.head_dim)


def feed_forward(ops: Operations, spec: ModelSpec, network: FeedForward, x: Value) -> Value:
    """Gated feed-forward network on x [rows, width] -> [rows, width]."""
    gate_up = ops.linear(x, network.gate_up.matrix, network.gate_up.bias)
    return ops.linear(ops.gated(gate_up, spec.gate), network.down.matrix, network.down.bias)


def mixture(
    ops: Operations, spec: ModelSpec, layer: LayerWeights, network: Mixture, x: Value, normed: Value
) -> Value:
    """Mixture of experts of one layer on x [rows, width], normed for its block -> [rows, width]."""
    own = spec.layers[layer.index].experts
    assert own is not None
    routed = normed if network.router_norm is None else _norm(ops, spec, x, network.router_norm)
    logits = ops.linear(routed, network.router.matrix, network.router.bias, planes=2)
    taken = normed if network.norm is None else _norm(ops, spec, x, network.norm)
    mixed = ops.experts(taken, logits, network.experts, own.routing, spec.gate)
    mixed = _norm(ops, spec, mixed, network.post_norm)
    if network.shared is None:
        return mixed
    if isinstance(network.shared, FeedForward):
        shared = feed_forward(ops, spec, network.shared, normed)
    else:
        assert network.shared_router is not None
        share = ops.linear(normed, network.shared_router.matrix, network.shared_router.bias, planes=2)
        shared = ops.experts(normed, share, network.shared, _SHARED, spec.gate)
    return ops.add(mixed, _norm(ops, spec, shared, network.shared_post_norm))


def layer_inputs(
    ops: Operations, spec: ModelSpec, inputs: Inputs, x: Value, tokens: Value
) -> tuple[Value, ...]:
    """What each layer gets of the tokens besides, [rows, input_columns] each: of the tokens themselves, and
    of them embedded, x.
    """
    of_tokens = ops.scale(ops.embedding(inputs.embedding, tokens), spec.input_columns**0.5)
    projected = ops.scale(ops.linear(x, inputs.projection, planes=2), spec.width**-0.5)
    both = ops.scale(ops.add(_norm(ops, spec, projected, inputs.norm), of_tokens), 0.5**0.5)
    return ops.split(both, (spec.input_columns,) * len(spec.layers))


def with_input(ops: Operations, spec: ModelSpec, own: LayerInput, x: Value, given: Value) -> Value:
    """The rows x with what the layer gets of their tokens -> [rows, width]."""
    gated = ops.gated(ops.linear(x, own.gate.matrix, own.gate.bias), spec.gate, given)
    projected = ops.linear(gated, own.projection.matrix, own.projection.bias)
    return ops.add(x, _norm(ops, spec, projected, own.norm))


def decoder(ops: Operations, spec: ModelSpec, weights: Weights, batch: Batch) -> Value:
    """Tokens of one step -> sampled tokens of its sample rows. Runs once a step, or once a recording."""
    x, given = embedded(ops, spec, weights, batch)
    return head(ops, spec, weights, batch, layers(ops, spec, weights, batch, x, given))


def embedded(
    ops: Operations, spec: ModelSpec, weights: Weights, batch: Batch
) -> tuple[Value, tuple[Value, ...]]:
    """What the first layer takes, [rows, width], and what each layer gets of the tokens besides."""
    x = _scaled(ops, ops.embedding(weights.embedding, batch.tokens), spec.embedding_scale)
    given = () if weights.inputs is None else layer_inputs(ops, spec, weights.inputs, x, batch.tokens)
    return x, given


def layers(
    ops: Operations, spec: ModelSpec, weights: Weights, batch: Batch, x: Value, given: tuple[Value, ...]
) -> Value:
    """The rows x [rows, width] through all layers."""
    for layer in weights.layers:
        normed, network = _norm(ops, spec, x, layer.attention_norm), layer.network
        y = attention(ops, spec, weights, layer, normed, batch)
        y = _norm(ops, spec, y, layer.attention_post_norm)
        x = ops.add(x, _scaled(ops, y, spec.residual_scale))
        if not spec.parallel:
            normed = _norm(ops, spec, x, layer.mlp_norm)
        y = (
            mixture(ops, spec, layer, network, x, normed)
            if isinstance(network, Mixture)
            else feed_forward(ops, spec, network, normed)
        )
        y = _norm(ops, spec, y, layer.mlp_post_norm)
        x = ops.add(x, _scaled(ops, y, spec.residual_scale))
        if layer.input is not None:
            x = with_input(ops, spec, layer.input, x, given[layer.index])
        x = _scaled(ops, x, layer.scale)
    return x


def head(ops: Operations, spec: ModelSpec, weights: Weights, batch: Batch, x: Value) -> Value:
    """The rows x [rows, width] behind the last layer -> sampled tokens of the step's sample rows."""
    last = _norm(ops, spec, ops.gather(x, batch.sample_rows), weights.norm)
    # A row of the vocabulary's length would take longer to scale.
    logits = ops.linear(_scaled(ops, last, spec.head_scale), weights.head)
    if spec.logit_cap is not None:
        logits = ops.cap(logits, spec.logit_cap)
    return ops.sample(logits, batch.sampling)


def _norm(ops: Operations, spec: ModelSpec, x: Value, weight: Handle | None) -> Value:
    if weight is None:
        return x
    return ops.rms_norm(ops.center(x) if spec.centered else x, weight, spec.norm_eps)


def _scaled(ops: Operations, x: Value, factor: float) -> Value:
    return x if factor == 1.0 else ops.scale(x, factor)
