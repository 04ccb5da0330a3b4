"""config.json of a safetensors folder -> model specification (keys as in Hugging Face transformers)."""

from __future__ import annotations

import math
from dataclasses import replace

from kernels.interface import Gate

from ..models.family import Family, Windows
from ..models.spec import LayerSpec, ModelSpec, RopeSpec
from . import declared
from .declared import Declared
from .fields import Fields, shown


def _head_dim(config: Fields, width: int, heads: int) -> int:
    explicit: int | None = config.integer("head_dim", *declared.HEAD_DIM, default=None)
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


def _ropes(config: Fields, family: Family, head_dim: int, context: int) -> tuple[RopeSpec, RopeSpec]:
    """Rotations of layers that see all keys and of those with a window.

    From rope_scaling and rope_theta, or rope_parameters (transformers 5); the former wins, as there.
    """
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = config.mapping(key) or Fields(config.path, {})
    if not any(isinstance(value, dict) for value in rope.values.values()):
        full = _rope(rope, config, family, head_dim, context)
        if family.local_base is None:
            return full, full
        default = family.local_base.default
        base = config.number(family.local_base.config, *declared.ROPE_BASE, default=default)
        return full, RopeSpec(base=base, layout=full.layout, columns=full.columns)
    if family.local_base is None:
        config.fail(key, "that differ between layers are not supported")
    kinds = (rope.mapping(f"{kind}_attention") for kind in ("full", "sliding"))
    full, local = (
        _rope(kind or Fields(config.path, {}), config, family, head_dim, context) for kind in kinds
    )
    return full, local


def _columns(rope: Fields, config: Fields, family: Family, head_dim: int) -> int | None:
    """Columns of a head that rotate, None for all."""
    for fields in (rope, config):
        part = fields.number("partial_rotary_factor", 0.0, 1.0, default=None)
        if part not in (None, 1.0) and family.turning is None:
            fields.fail("partial_rotary_factor", "other than 1 is not supported")
        if part is not None:
            break
    columns = int(head_dim * (part if part is not None else family.turning or 1.0))
    if columns == head_dim:
        return None
    if columns < 2 or columns % 2:
        config.fail("partial_rotary_factor", f"must make an even number of columns rotate, not {columns}")
    return columns


def _rope(rope: Fields, config: Fields, family: Family, head_dim: int, context: int) -> RopeSpec:
    base = rope.number("rope_theta", *declared.ROPE_BASE, default=None)
    if base is None:
        base = config.number("rope_theta", *declared.ROPE_BASE, default=family.rope_base)
    columns = _columns(rope, config, family, head_dim)
    plain = RopeSpec(base=base, layout=family.layout, columns=columns)
    kind = rope.string("rope_type", default=None) or rope.string("type", default="default")
    if kind == "default":
        return plain
    if kind not in ("linear", "llama3", "yarn"):
        rope.fail("rope_type", f"{shown(kind)} is not supported (default, linear, llama3 and yarn are)")
    factor = rope.number("factor", *declared.ROPE_FACTOR)
    if kind == "linear":
        return replace(plain, scaling="linear", factor=factor)
    original = rope.integer("original_max_position_embeddings", *declared.CONTEXT, default=context)
    if kind == "llama3":
        low = rope.number("low_freq_factor", 1e-3, 1e3)
        high = rope.number("high_freq_factor", 1e-3, 1e3)
        if low >= high:
            rope.fail("high_freq_factor", f"({high:g}) must be above low_freq_factor ({low:g})")
        return replace(
            plain,
            scaling="llama3",
            factor=factor,
            original_context=original,
            low_factor=low,
            high_factor=high,
        )
    if rope.boolean("truncate", default=True) is False:
        rope.fail("truncate", "false is not supported")
    return replace(
        plain,
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
    window: int | None = config.integer("sliding_window", *declared.WINDOW, default=None)
    if "sliding_window" not in config.values:
        window = windows.default  # the library's; models without a window say null
    types = config.get("layer_types")
    if windows.same:
        if types not in (None, ["full_attention" if window is None else "sliding_attention"] * layers):
            config.fail("layer_types", "that differ from layer to layer are not supported here")
        return [window] * layers
    if types is None:
        first = 0 if windows.first is None else config.integer(windows.first[0], 0, 1 << 31, windows.first[1])
        every = declared.last_of(config, *windows.every, layers) if windows.every else [False] * layers
        return [None if i < first or every[i] else window for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        config.fail("layer_types", f"must list one entry for each of the {layers} layers")
    for entry in types:
        if entry not in ("full_attention", "sliding_attention"):
            config.fail("layer_types", f"holds {shown(entry)}, which is not supported")
    return [window if entry == "sliding_attention" else None for entry in types]


def _rotating(config: Fields, still: tuple[str, str, int] | None, layers: int) -> list[bool]:
    """Which layers rotate."""
    if still is None:
        return [True] * layers
    listed = config.get(still[0])
    if listed is None:
        return [not last for last in declared.last_of(config, *still[1:], layers)]
    if not isinstance(listed, list) or len(listed) != layers or any(entry not in (0, 1) for entry in listed):
        config.fail(still[0], f"must list 0 or 1 for each of the {layers} layers")
    return [entry == 1 for entry in listed]


def _gate(config: Fields, family: Family) -> Gate:
    known = family.gates
    activation = config.string(family.gate_key, default=next(iter(known)))
    if activation not in known:
        config.fail(family.gate_key, f"{shown(activation)} is not supported ({next(iter(known))} is)")
    return known[activation]


def _refuse_unsupported(config: Fields, family: Family) -> None:
    for option in (*family.refused, *{"mlp_bias"}.difference(family.bias_options)):
        if config.boolean(option, default=False):
            config.fail(option, "true is not supported")
    if config.get("quantization_config") is not None:
        config.fail(
            "quantization_config", "is not supported: use the model's unquantized files or a GGUF file"
        )


def read_config(config: Fields) -> Declared:
    """The specification in a parsed config.json. Raises EngineError(model_invalid) naming the field."""
    family = declared.folder_family(config)
    gate = _gate(config, family)
    _refuse_unsupported(config, family)
    width = config.integer("hidden_size", *declared.WIDTH)
    layers = config.integer("num_hidden_layers", *declared.LAYERS)
    heads = config.integer("num_attention_heads", *declared.HEADS)
    context = config.integer("max_position_embeddings", *declared.CONTEXT)
    head_dim = _head_dim(config, width, heads)
    windows = _windows(config, family.windows, layers)
    rotating = _rotating(config, family.still, layers)
    full, local = _ropes(config, family, head_dim, context)
    spec = ModelSpec(
        architecture=config.string("model_type"),
        layers=tuple(
            LayerSpec(window, None if not turns else full if window is None else local)
            for window, turns in zip(windows, rotating, strict=True)
        ),
        width=width,
        heads=heads,
        kv_heads=config.integer("num_key_value_heads", *declared.HEADS, default=heads),
        head_dim=head_dim,
        feed_forward=config.integer("intermediate_size", *declared.FEED_FORWARD),
        vocabulary=config.integer("vocab_size", *declared.VOCABULARY),
        context_length=declared.usable_context(context, full),
        norm_eps=config.number("rms_norm_eps", *declared.NORM_EPS, default=1e-6),
        gate=gate,
    )
    spec = declared.with_options(spec, config, family, "huggingface")
    declared.check_relations(spec, config)
    biases = set(family.biases)
    for option, roles in family.bias_options.items():
        if config.boolean(option, default=False):
            biases.update(roles)
    tied: bool | None = config.boolean("tie_word_embeddings", default=None)
    return Declared(family, spec, frozenset(biases), tied)
