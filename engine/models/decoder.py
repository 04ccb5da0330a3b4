"""The one decoder: a transformer with rotary attention and a gated feed-forward network."""

from __future__ import annotations

from kernels.interface import Handle, Inputs, Operations, Value

from .spec import ModelSpec, RopeSpec, Sizes
from .weights import FeedForward, LayerWeights, Mixture, Weights


def attention(
    ops: Operations, spec: ModelSpec, weights: Weights, layer: LayerWeights, x: Value, batch: Inputs
) -> Value:
    """Attention block of one layer on x [rows, width] -> [rows, width]."""
    own, sizes, at = spec.layers[layer.index], spec.sizes(layer.index), spec.cache_layer(layer.index)
    qkv = ops.linear(x, layer.qkv.matrix, layer.qkv.bias, planes=2)
    # A layer that shares has queries alone; where keys are values, those come once.
    kinds = 1 if own.shares is not None else 2 if own.keys_are_values else 3
    q, *kv = ops.split(qkv, (sizes.q_columns, *[sizes.kv_columns] * (kinds - 1)))
    q = _rotated(ops, weights, own.rope, sizes, _norm(ops, spec, q, layer.q_norm), batch)
    if kv:
        k, v = kv[0], _norm(ops, spec, kv[-1], layer.v_norm)
        rope = None if own.rope is None else own.rope.of_keys
        k = _rotated(ops, weights, rope, sizes, _norm(ops, spec, k, layer.k_norm), batch)
        ops.kv_write(at, k, v, batch.slots)
    scale = sizes.head_dim**-0.5 if spec.attention_scale is None else spec.attention_scale
    mixed = ops.paged_attention(
        at, q, batch, scale=scale, window=own.window, cap=spec.score_cap, sinks=layer.sinks
    )
    return ops.linear(mixed, layer.output.matrix, layer.output.bias)


def _rotated(
    ops: Operations, weights: Weights, rope: RopeSpec | None, sizes: Sizes, x: Value, batch: Inputs
) -> Value:
    if rope is None:
        return x
    rotation = weights.rotations[rope.turning(sizes.head_dim)]
    return ops.rope(x, batch.positions, rotation, head_dim=sizes.head_dim)


def feed_forward(ops: Operations, spec: ModelSpec, network: FeedForward, x: Value) -> Value:
    """Gated feed-forward network on x [rows, width] -> [rows, width]."""
    gate_up = ops.linear(x, network.gate_up.matrix, network.gate_up.bias)
    return ops.linear(ops.gated(gate_up, spec.gate), network.down.matrix, network.down.bias)


def mixture(ops: Operations, spec: ModelSpec, layer: LayerWeights, network: Mixture, x: Value) -> Value:
    """Mixture of experts of one layer on x [rows, width] -> [rows, width]."""
    own = spec.layers[layer.index].experts
    assert own is not None
    logits = ops.linear(x, network.router.matrix, network.router.bias, planes=2)
    mixed = ops.experts(x, logits, network.experts, own.routing, spec.gate)
    return mixed if network.shared is None else ops.add(mixed, feed_forward(ops, spec, network.shared, x))


def decoder(ops: Operations, spec: ModelSpec, weights: Weights, batch: Inputs) -> Value:
    """Tokens of one step -> sampled tokens of its sample rows. Runs once a step, or once a recording."""
    x = _scaled(ops, ops.embedding(weights.embedding, batch.tokens), spec.embedding_scale)
    for layer in weights.layers:
        y = attention(ops, spec, weights, layer, _norm(ops, spec, x, layer.attention_norm), batch)
        y = _norm(ops, spec, y, layer.attention_post_norm)
        x = ops.add(x, _scaled(ops, y, spec.residual_scale))
        normed, network = _norm(ops, spec, x, layer.mlp_norm), layer.network
        y = (
            mixture(ops, spec, layer, network, normed)
            if isinstance(network, Mixture)
            else feed_forward(ops, spec, network, normed)
        )
        y = _norm(ops, spec, y, layer.mlp_post_norm)
        x = ops.add(x, _scaled(ops, y, spec.residual_scale))
    last = _norm(ops, spec, ops.gather(x, batch.sample_rows), weights.norm)
    # A row of the vocabulary's length would take longer to scale.
    logits = ops.linear(_scaled(ops, last, spec.head_scale), weights.head)
    if spec.logit_cap is not None:
        logits = ops.cap(logits, spec.logit_cap)
    return ops.sample(logits, batch.sampling)


def _norm(ops: Operations, spec: ModelSpec, x: Value, weight: Handle | None) -> Value:
    return x if weight is None else ops.rms_norm(x, weight, spec.norm_eps)


def _scaled(ops: Operations, x: Value, factor: float) -> Value:
    return x if factor == 1.0 else ops.scale(x, factor)
