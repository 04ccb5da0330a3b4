"""The one decoder: a pre-norm transformer with rotary attention and a gated feed-forward network."""

from __future__ import annotations

from kernels.interface import Inputs, Operations, Value

from .spec import ModelSpec
from .weights import LayerWeights, Weights


def attention(
    ops: Operations, spec: ModelSpec, layer: LayerWeights, rotation: Value, x: Value, batch: Inputs
) -> Value:
    """Attention block of one layer on normalized x [rows, width] -> [rows, width]."""
    qkv = ops.linear(x, layer.qkv, layer.qkv_bias, planes=2)
    q, k, v = ops.split(qkv, (spec.q_columns, spec.kv_columns, spec.kv_columns))
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = ops.rms_norm(q, layer.q_norm, spec.norm_eps), ops.rms_norm(k, layer.k_norm, spec.norm_eps)
    q, k = ops.rope(q, batch.positions, rotation), ops.rope(k, batch.positions, rotation)
    ops.kv_write(layer.index, k, v, batch.slots)
    scale = spec.head_dim**-0.5
    mixed = ops.paged_attention(layer.index, q, batch, scale=scale, window=spec.layer_window(layer.index))
    return ops.linear(mixed, layer.output, layer.output_bias)


def decoder(ops: Operations, spec: ModelSpec, weights: Weights, batch: Inputs) -> Value:
    """Tokens of one step -> sampled tokens of its sample rows. Runs once a step, or once a recording."""
    x = ops.embedding(weights.embedding, batch.tokens)
    for layer in weights.layers:
        normed = ops.rms_norm(x, layer.attention_norm, spec.norm_eps)
        x = ops.add(x, attention(ops, spec, layer, weights.rotation, normed, batch))
        normed = ops.rms_norm(x, layer.mlp_norm, spec.norm_eps)
        x = ops.add(x, ops.linear(ops.gated(ops.linear(normed, layer.gate_up)), layer.down))
    last = ops.rms_norm(ops.gather(x, batch.sample_rows), weights.norm, spec.norm_eps)
    return ops.sample(ops.linear(last, weights.head), batch.sampling)
