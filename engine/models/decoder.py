"""The one decoder: a transformer with rotary attention and a gated feed-forward network."""

from __future__ import annotations

from kernels.interface import Handle, Inputs, Operations, Value

from .spec import ModelSpec
from .weights import FeedForward, LayerWeights, Mixture, Weights


def attention(
    ops: Operations, spec: ModelSpec, weights: Weights, layer: LayerWeights, x: Value, batch: Inputs
) -> Value:
    """Attention block of one layer on x [rows, width] -> [rows, width]."""
    own = spec.layers[layer.index]
    qkv = ops.linear(x, layer.qkv.matrix, layer.qkv.bias, planes=2)
    q, k, v = ops.split(qkv, (spec.q_columns, spec.kv_columns, spec.kv_columns))
    q, k = _norm(ops, spec, q, layer.q_norm), _norm(ops, spec, k, layer.k_norm)
    if own.rope is not None:
        q = ops.rope(q, batch.positions, weights.rotations[own.rope], head_dim=spec.head_dim)
        k = ops.rope(k, batch.positions, weights.rotations[own.rope.of_keys], head_dim=spec.head_dim)
    ops.kv_write(layer.index, k, v, batch.slots)
    scale = spec.head_dim**-0.5 if spec.attention_scale is None else spec.attention_scale
    mixed = ops.paged_attention(
        layer.index, q, batch, scale=scale, window=own.window, cap=spec.score_cap, sinks=layer.sinks
    )
    return ops.linear(mixed, layer.output.matrix, layer.output.bias)


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
