"""config.json of a safetensors folder -> model specification (keys as in Hugging Face transformers)."""

from __future__ import annotations

import math

from kernels.interface import Gate

from ..models.family import Family, Windows
from ..models.spec import LayerSpec, ModelSpec, RopeSpec
from . import declared as limits
from .declared import Declared
from .fields import Fields, shown


def _head_dim(config: Fields, width: int, heads: int) -> int:
    explicit: int | None = config.integer("head_dim", *limits.HEAD_DIM, default=None)
    if explicit is not None:
        return explicit
    if width % heads:
        config.fail("num_attention_heads", f"is {heads}, which does not divide hidden_size ({width})")
    return width // heads


def _attention_factor(rope: Fields, factor: float) -> float | None:
    """YaRN's factor on queries and keys; None for the paper's own (see `rope.attention_factor`)."""
    explicit: float | None = rope.number("attention_factor", 1e-3, 1e3, default=None)
    mscale = rope.number("mscale", 0.0, 1e3, default=0.0)
    mscale_all = rope.number("mscale_all_dim", 0.0, 1e3, default=0.0)
    if explicit is not None or not mscale or not mscale_all:
        return explicit
    growth = 0.1 * math.log(max(factor, 1.0))
    return float((mscale * growth + 1.0) / (mscale_all * growth + 1.0))


def _rope(config: Fields, context: int) -> RopeSpec:
    """From rope_scaling and rope_theta, or rope_parameters (transformers 5); the former wins, as there."""
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = config.mapping(key) or Fields(config.path, {})
    if any(isinstance(value, dict) for value in rope.values.values()):
        config.fail(key, "that differ between layers are not supported")
    base = rope.number("rope_theta", *limits.ROPE_BASE, default=None)
    if base is None:
        base = config.number("rope_theta", *limits.ROPE_BASE, default=10000.0)
    for fields in (rope, config):
        if fields.number("partial_rotary_factor", 0.0, 1.0, default=1.0) != 1.0:
            fields.fail("partial_rotary_factor", "other than 1 is not supported")
    kind = rope.string("rope_type", default=None) or rope.string("type", default="default")
    if kind == "default":
        return RopeSpec(base=base)
    if kind not in ("linear", "llama3", "yarn"):
        rope.fail("rope_type", f"{shown(kind)} is not supported (default, linear, llama3 and yarn are)")
    factor = rope.number("factor", *limits.ROPE_FACTOR)
    if kind == "linear":
        return RopeSpec(base=base, scaling="linear", factor=factor)
    original = rope.integer("original_max_position_embeddings", *limits.CONTEXT, default=context)
    if kind == "llama3":
        low = rope.number("low_freq_factor", 1e-3, 1e3)
        high = rope.number("high_freq_factor", 1e-3, 1e3)
        if low >= high:
            rope.fail("high_freq_factor", f"({high:g}) must be above low_freq_factor ({low:g})")
        return RopeSpec(
            base=base,
            scaling="llama3",
            factor=factor,
            original_context=original,
            low_factor=low,
            high_factor=high,
        )
    if rope.boolean("truncate", default=True) is False:
        rope.fail("truncate", "false is not supported")
    return RopeSpec(
        base=base,
        scaling="yarn",
        factor=factor,
        original_context=original,
        beta_fast=rope.number("beta_fast", 1e-3, 1e6, default=32.0),
        beta_slow=rope.number("beta_slow", 1e-3, 1e6, default=1.0),
        attention_factor=_attention_factor(rope, factor),
    )


def _windows(config: Fields, windows: Windows | None, layers: int) -> list[int | None]:
    """The sliding window of each layer: all layers of Mistral have it, some of Qwen's, none of Llama's."""
    if windows is None or (windows.switch and not config.boolean(windows.switch, default=False)):
        return [None] * layers
    window: int | None = config.integer("sliding_window", *limits.WINDOW, default=None)
    if "sliding_window" not in config.values:
        window = windows.default  # the library's; models without a window say null
    types = config.get("layer_types")
    if windows.same:
        if types not in (None, ["full_attention" if window is None else "sliding_attention"] * layers):
            config.fail("layer_types", "that differ from layer to layer are not supported here")
        return [window] * layers
    if types is None:
        first = 0 if windows.first is None else config.integer(windows.first[0], 0, 1 << 31, windows.first[1])
        return [None if i < first else window for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        config.fail("layer_types", f"must list one entry for each of the {layers} layers")
    for entry in types:
        if entry not in ("full_attention", "sliding_attention"):
            config.fail("layer_types", f"holds {shown(entry)}, which is not supported")
    return [window if entry == "sliding_attention" else None for entry in types]


def _gate(config: Fields, family: Family) -> Gate:
    known = family.gates
    activation = config.string(family.gate_key, default=next(iter(known)))
    if activation not in known:
        config.fail(family.gate_key, f"{shown(activation)} is not supported ({next(iter(known))} is)")
    return known[activation]


def _refuse_unsupported(config: Fields, family: Family) -> None:
    if "mlp_bias" not in family.bias_options and config.boolean("mlp_bias", default=False):
        config.fail("mlp_bias", "true is not supported")
    if config.get("quantization_config") is not None:
        config.fail(
            "quantization_config", "is not supported: use the model's unquantized files or a GGUF file"
        )


def read_config(config: Fields) -> Declared:
    """The specification in a parsed config.json. Raises EngineError(model_invalid) naming the field."""
    family = limits.folder_family(config)
    gate = _gate(config, family)
    _refuse_unsupported(config, family)
    width = config.integer("hidden_size", *limits.WIDTH)
    layers = config.integer("num_hidden_layers", *limits.LAYERS)
    heads = config.integer("num_attention_heads", *limits.HEADS)
    context = config.integer("max_position_embeddings", *limits.CONTEXT)
    windows = _windows(config, family.windows, layers)
    rope = _rope(config, context)
    spec = ModelSpec(
        architecture=config.string("model_type"),
        layers=tuple(LayerSpec(window, rope) for window in windows),
        width=width,
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", *limits.HEADS, default=heads),
        head_dim=_head_dim(config, width, heads),
        feed_forward=config.integer("intermediate_size", *limits.FEED_FORWARD),
        vocabulary=config.integer("vocab_size", *limits.VOCABULARY),
        context_length=limits.usable_context(context, rope),
        norm_eps=config.number("rms_norm_eps", *limits.NORM_EPS, default=1e-6),
        gate=gate,
    )
    spec = limits.with_options(spec, config, family, "huggingface")
    limits.check_relations(spec, config)
    biases = set(family.biases)
    for option, roles in family.bias_options.items():
        if config.boolean(option, default=False):
            biases.update(roles)
    tied: bool | None = config.boolean("tie_word_embeddings", default=None)
    return Declared(family, spec, frozenset(biases), tied)
