"""Metadata of a GGUF file -> model specification (keys as in ggml's docs/gguf.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..models.family import Family
from ..models.spec import LayerSpec, ModelSpec, RopeSpec, Sizes
from . import declared
from .declared import Declared
from .fields import Fields, invalid, shown
from .gguf import GGUFFile
from .gguf_rope import read_ropes
from .mixture import gguf_experts
from .other_models import refuse_pooling
from .varied import by_layer, gguf_layers

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "expert_group_count": (0, 1),
    "expert_weights_scale": (0.0, 1.0),
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.scale": (0.0,),
    "attention.output_scale": (0.0, 1.0),
    "attention.temperature_scale": (0.0,),
    "attention.rope_pattern": (True,),
    "attention.shared_kv_layers": (0,),
    "attention.q_lora_rank": (0,),
    "attention.kv_lora_rank": (0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "router_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "embedding_length_per_layer_input": (0,),
    "nextn_predict_layers": (0,),
    "swiglu_clamp_exp": (0.0,),
    "swiglu_clamp_shexp": (0.0,),
    "use_parallel_residual": (False,),
    "rope.dimension_sections": (0,),
    "rope.scaling.alpha": (0.0,),
    "rope.scaling.yarn_ext_factor": (1.0, -1.0),
}
"""Keys that change what is computed, and the values with which they do not. A file may hold one value of each
for all layers. Those that a family reads are its own affair."""

_ALIKE = {
    "rope.freq_base_swa": "rope.freq_base",
    "rope.dimension_count_swa": "rope.dimension_count",
    "attention.key_length_swa": "attention.key_length",
    "attention.value_length_swa": "attention.value_length",
}
"""Keys of layers with a window that must say what the other key does."""


_OTHER_PART = "is the part of a multimodal model that reads images or sound: give the file with its text part"
_PARTS = {
    "mmproj": _OTHER_PART,
    "clip": _OTHER_PART,
    "adapter": "changes another model (LoRA), which is not supported",
    "imatrix": "holds statistics for quantizing, no model",
}
"""Files that are no model, by their type, or by the architecture of those from before there were types."""


def _refuse_parts(general: Fields) -> None:
    for key in ("general.type", "general.architecture"):
        said = general.get(key)
        if isinstance(said, str) and said in _PARTS:
            raise invalid(general.path, f"{_PARTS[said]} ({key} is {said!r})", colon=False)


def _entries(value: Any) -> list[Any]:
    """Of an array, or the value itself as the only one."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    return listed if isinstance(listed, list) else [listed]


def _read_by(family: Family) -> set[str]:
    """Keys whose values the specification follows from."""
    keys = {option.metadata for option in (*family.options.values(), family.local_base) if option}
    if family.temperature is not None:
        keys.add(family.temperature[1])
    if family.mixture is not None:
        keys.add("expert_count")
        if family.mixture.scale is not None:
            keys.add(family.mixture.scale[1])
    if family.guessing is not None:
        keys.add(family.guessing[1])
    if family.inputs is not None:
        keys.add(family.inputs[1])
    if family.varied is not None:
        keys |= {"attention.shared_kv_layers", "rope.dimension_count_swa"}
        keys |= {"attention.key_length_swa", "attention.value_length_swa"}
    return keys | ({"rope.dimension_sections"} if family.sections else set())


def _refuse_unsupported(model: Fields, family: Family) -> None:
    refuse_pooling(model)
    read = _read_by(family)
    for key in _NEUTRAL.keys() - read:
        value = model.get(key)
        if value is not None and any(entry not in _NEUTRAL[key] for entry in _entries(value)):
            model.fail(key, f"{shown(value)} is not supported")
    for key in _ALIKE.keys() - read:
        if model.get(key) not in (None, model.get(_ALIKE[key])):
            model.fail(key, f"other than {_ALIKE[key]} is not supported")


def _layers(model: Fields, family: Family, full: RopeSpec, local: RopeSpec) -> tuple[LayerSpec, ...]:
    count = model.integer("block_count", *declared.LAYERS) - declared.guessing(model, family, "gguf")
    if count < 1:
        model.fail("block_count", "leaves no layer but those that guess further tokens")
    default = family.windows.gguf_default if family.windows else None
    window = model.integer("attention.sliding_window", 0, declared.WINDOW[1], default=default or 0) or None
    sees_all = _sees_all(model, family, count)
    still = declared.last_of(model, "", family.still[2], count) if family.still else [False] * count
    seen = [None if every else window for every in sees_all]
    if family.windows_rotate and window is not None:
        still = sees_all
    experts = gguf_experts(model, family.mixture, count)
    return tuple(
        LayerSpec(keys, None if stays else full if keys is None else local, own)
        for keys, stays, own in zip(seen, still, experts, strict=True)
    )


def _sees_all(model: Fields, family: Family, count: int) -> list[bool]:
    """Which layers have no window in a model with one."""
    name = "attention.sliding_window_pattern"
    every = family.windows.every if family.windows else None
    pattern = model.get(name)
    if every is None:
        if pattern is not None:
            model.fail(name, "is not supported")
        return [False] * count
    if pattern is None or type(pattern) is int:
        return declared.last_of(model, name, every[1], count)
    listed = _entries(pattern)
    if len(listed) != count or any(each not in (0, 1) for each in listed):
        model.fail(name, f"must be a number, or list for each of the {count} layers whether it has a window")
    return [not windowed for windowed in listed]


def _sizes(model: Fields, family: Family, heads: int, head_dim: int, layers: int) -> Sizes:
    """Of all layers, or in a model where they differ, of the first ones and of those with a window."""
    if family.varied is None:
        kv_heads = model.integer("attention.head_count_kv", *declared.HEADS, default=heads)
        return Sizes(heads, kv_heads, head_dim, model.integer("feed_forward_length", *declared.FEED_FORWARD))
    own = model.integer("attention.key_length_swa", *declared.HEAD_DIM)
    if model.integer("attention.value_length_swa", *declared.HEAD_DIM, default=own) != own:
        model.fail("attention.value_length_swa", f"other than the key length ({own}) is not supported")
    kv_heads = by_layer(model, "attention.head_count_kv", declared.HEADS, layers)[0]
    return Sizes(
        heads, kv_heads, own, by_layer(model, "feed_forward_length", declared.FEED_FORWARD, layers)[0]
    )


def _as_named(file: GGUFFile, family: Family) -> Family:
    """The family with the names of tensors that this file has."""
    if not any(f"blk.0.{name}" in file.tensors for name, _ in family.fused.values()):
        return family
    return replace(family, names={**family.names, **family.fused})


def read_metadata(file: GGUFFile) -> Declared:
    """The specification a GGUF file declares. Raises EngineError(model_invalid) naming the key."""
    general = file.fields()
    _refuse_parts(general)
    family = _as_named(file, declared.gguf_family(general))
    architecture = general.string("general.architecture")
    if (parts := general.integer("split.count", 0, 1 << 16, default=1)) > 1:
        general.fail("split.count", f"is {parts}: this is only a part of the model")
    model = file.fields(f"{architecture}.")
    _refuse_unsupported(model, family)
    width = model.integer("embedding_length", *declared.WIDTH)
    heads = model.integer("attention.head_count", *declared.HEADS)
    context = model.integer("context_length", *declared.CONTEXT)
    head_dim = model.integer("attention.key_length", *declared.HEAD_DIM, default=None)
    if head_dim is None:
        head_dim = width // heads
        if width % heads:
            model.fail(
                "attention.head_count", f"is {heads}, which does not divide embedding_length ({width})"
            )
    if model.integer("attention.value_length", *declared.HEAD_DIM, default=head_dim) != head_dim:
        model.fail("attention.value_length", f"other than the key length ({head_dim}) is not supported")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        model.refuse("tensor token_embd.weight is missing")
    full, local = read_ropes(file, model, family, head_dim, context)
    layers = _layers(model, family, full, local)
    sizes = _sizes(model, family, heads, head_dim, len(layers))
    spec = ModelSpec(
        architecture=architecture,
        layers=gguf_layers(file, model, family.varied, layers, sizes),
        width=width,
        heads=heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        feed_forward=sizes.feed_forward,
        vocabulary=embedding.shape[0],
        context_length=declared.usable_context(context, full),
        norm_eps=model.number(
            "attention.layer_norm_epsilon" if family.centered else "attention.layer_norm_rms_epsilon",
            *declared.NORM_EPS,
        ),
        gate=next(iter(family.gates.values())),
        rotated_norm=family.rotated_norm,
        centered=family.centered,
        parallel=family.parallel,
        value_norm=family.value_norm,
        input_columns=model.integer(family.inputs[1], 0, declared.WIDTH[1], default=0)
        if family.inputs
        else 0,
    )
    spec = declared.with_options(spec, model, family, "gguf")
    declared.check_relations(spec, model)
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > spec.vocabulary:
        model.refuse(f"tokenizer.ggml.tokens has {len(tokens)} entries, the embedding {spec.vocabulary} rows")
    return Declared(family, spec, frozenset(family.biases), guessing=declared.guessing(model, family, "gguf"))
