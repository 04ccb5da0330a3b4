"""Metadata of a GGUF file -> model specification (keys as in ggml's docs/gguf.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..models.family import Family
from ..models.rope import attention_factor
from ..models.spec import LayerSpec, ModelSpec, RopeSpec
from . import declared
from .declared import Declared
from .fields import Fields, shown
from .gguf import GGUFFile
from .stored import to_vector

ROPE_FACTORS = "rope_freqs.weight"


def _factors(file: GGUFFile, fields: Fields, head_dim: int) -> tuple[float, ...]:
    """Divisors of the frequencies, as files of Llama 3.1 and later carry them; empty without."""
    stored = file.tensors.get(ROPE_FACTORS)
    if stored is None:
        return ()
    if stored.shape != (head_dim // 2,):
        fields.refuse(f"tensor {ROPE_FACTORS} has the shape {stored.shape}, not {(head_dim // 2,)}")
    values = to_vector(stored).values
    if not (np.isfinite(values) & (values > 0)).all():
        fields.refuse(f"tensor {ROPE_FACTORS} holds values that are not positive numbers")
    return tuple(values.tolist())


def _rope(file: GGUFFile, model: Fields, family: Family, head_dim: int, context: int) -> RopeSpec:
    turning = model.integer("rope.dimension_count", 1, 1 << 16, default=head_dim)
    if turning != head_dim and family.turning is None:
        model.fail("rope.dimension_count", f"other than the head size ({head_dim}) is not supported")
    if turning > head_dim or turning % 2:
        model.fail("rope.dimension_count", f"must be even and at most the head size ({head_dim})")
    rope = RopeSpec(
        base=model.number("rope.freq_base", *declared.ROPE_BASE, default=10000.0),
        layout=family.gguf_layout,
        columns=None if turning == head_dim else turning,
    )
    factor = model.number("rope.scaling.factor", 0.0, 1e6, default=None)
    if factor is None:
        factor = model.number("rope.scale_linear", 0.0, 1e6, default=0.0)
    kind = model.string("rope.scaling.type", default="linear")
    if kind not in ("none", "linear", "yarn"):
        model.fail("rope.scaling.type", f"{shown(kind)} is not supported (none, linear and yarn are)")
    # A factor of 0 stands for none in ggml.
    scaled = kind != "none" and factor not in (0.0, 1.0)
    factors = _factors(file, model, turning)
    if factors and scaled:
        model.fail("rope.scaling.type", f"{kind!r} together with tensor {ROPE_FACTORS} is not supported")
    if factors:
        return replace(rope, scaling="factors", factors=factors)
    if not scaled:
        return rope
    if factor < declared.ROPE_FACTOR[0]:
        model.fail("rope.scaling.factor", f"must be at least {declared.ROPE_FACTOR[0]:g}, not {factor:g}")
    if kind == "linear":
        return replace(rope, scaling="linear", factor=factor)
    yarn = replace(
        rope,
        scaling="yarn",
        factor=factor,
        original_context=model.integer(
            "rope.scaling.original_context_length", *declared.CONTEXT, default=context
        ),
        beta_fast=model.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, default=32.0),
        beta_slow=model.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, default=1.0),
    )
    scale = model.number("rope.scaling.attn_factor", 1e-3, 1e3, default=1.0)
    return replace(yarn, attention_factor=attention_factor(yarn) * scale)


def _refuse_unsupported(model: Fields) -> None:
    if model.integer("expert_count", 0, 1 << 16, default=0):
        model.fail("expert_count", "above 0 (a mixture of experts) is not supported")
    if not model.boolean("attention.causal", default=True):
        model.fail("attention.causal", "false is not supported")
    if model.get("attention.sliding_window_pattern") is not None:
        model.fail("attention.sliding_window_pattern", "is not supported")


def _layers(model: Fields, family: Family, rope: RopeSpec) -> tuple[LayerSpec, ...]:
    count = model.integer("block_count", *declared.LAYERS)
    windows = family.windows
    every = windows.every if windows else None
    default = windows.default if windows and every else None
    window = model.integer("attention.sliding_window", 0, declared.WINDOW[1], default=default or 0) or None
    local = rope
    if (source := family.local_base) is not None:
        base = model.number(source.metadata, *declared.ROPE_BASE, default=source.default)
        local = RopeSpec(base=base, layout=rope.layout, columns=rope.columns)
    full = declared.last_of(model, "", every[1], count) if every else [False] * count
    still = declared.last_of(model, "", family.still[2], count) if family.still else [False] * count
    seen = [None if sees_all else window for sees_all in full]
    return tuple(
        LayerSpec(keys, None if stays else rope if keys is None else local)
        for keys, stays in zip(seen, still, strict=True)
    )


def read_metadata(file: GGUFFile) -> Declared:
    """The specification a GGUF file declares. Raises EngineError(model_invalid) naming the key."""
    general = file.fields()
    family = declared.gguf_family(general)
    architecture = general.string("general.architecture")
    if (parts := general.integer("split.count", 0, 1 << 16, default=1)) > 1:
        general.fail("split.count", f"is {parts}: this is only a part of the model")
    model = file.fields(f"{architecture}.")
    _refuse_unsupported(model)
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
    rope = _rope(file, model, family, head_dim, context)
    spec = ModelSpec(
        architecture=architecture,
        layers=_layers(model, family, rope),
        width=width,
        heads=heads,
        kv_heads=model.integer("attention.head_count_kv", *declared.HEADS, default=heads),
        head_dim=head_dim,
        feed_forward=model.integer("feed_forward_length", *declared.FEED_FORWARD),
        vocabulary=embedding.shape[0],
        context_length=declared.usable_context(context, rope),
        norm_eps=model.number("attention.layer_norm_rms_epsilon", *declared.NORM_EPS),
        gate=next(iter(family.gates.values())),
    )
    spec = declared.with_options(spec, model, family, "gguf")
    declared.check_relations(spec, model)
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > spec.vocabulary:
        model.refuse(f"tokenizer.ggml.tokens has {len(tokens)} entries, the embedding {spec.vocabulary} rows")
    return Declared(family, spec, frozenset(family.biases))
