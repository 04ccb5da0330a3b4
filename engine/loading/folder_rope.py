"""The rotations that a config.json declares (keys as in Hugging Face transformers)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..models.family import Family
from ..models.rope import yarn_growth
from ..models.spec import RopeSpec
from . import declared
from .fields import Fields, shown

_KINDS = ("dynamic", "linear", "llama3", "yarn", "longrope", "proportional")
_STILL = float(np.float32(1e30))
"""What GGUF files divide the frequencies of pairs by that do not turn."""


def read_ropes(
    config: Fields, family: Family, head_dims: tuple[int, int], context: int
) -> tuple[RopeSpec, RopeSpec]:
    """Rotations of layers that see all keys and of those with a window.

    head_dims: of both. From rope_scaling and rope_theta, or rope_parameters (transformers 5); the former
    wins, as there.
    """
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = config.mapping(key) or Fields(config.path, {})
    if not any(isinstance(value, dict) for value in rope.values.values()):
        if family.varied is not None:
            config.fail(key, "must say how layers of both kinds rotate")
        # Models of a longer context than their first one may say so beside the rotation: that wins.
        original = config.integer("original_max_position_embeddings", *declared.CONTEXT, default=None)
        full = _rope(rope, config, family, head_dims[0], context, original)
        if family.local_base is None:
            return full, full
        base = config.number(family.local_base.config, *declared.ROPE_BASE, default=family.local_base.default)
        return full, RopeSpec(
            base=full.base if base is None else base, layout=full.layout, columns=full.columns
        )
    if family.local_base is None:
        config.fail(key, "that differ between layers are not supported")
    kinds = (rope.mapping(f"{kind}_attention") or Fields(config.path, {}) for kind in ("full", "sliding"))
    full, local = (
        _rope(kind, config, family, head_dim, context, None)
        for kind, head_dim in zip(kinds, head_dims, strict=True)
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


def _rope(
    rope: Fields, config: Fields, family: Family, head_dim: int, context: int, original: int | None
) -> RopeSpec:
    kind = rope.string("rope_type", default=None) or rope.string("type", default="default")
    kind = family.rope_kinds.get(kind, kind)
    base = rope.number("rope_theta", *declared.ROPE_BASE, default=None)
    if base is None:
        base = config.number("rope_theta", *declared.ROPE_BASE, default=family.rope_base)
    columns = None if kind == "proportional" else _columns(rope, config, family, head_dim)
    if rope.get("mrope_section") is not None and not family.sections:
        rope.fail("mrope_section", "is not supported")
    if kind == family.stretched:
        kind, base = "default", base * _stretch(rope, columns or head_dim)
    if kind != "default" and kind not in _KINDS:
        rope.fail("rope_type", f"{shown(kind)} is not supported (default, {', '.join(_KINDS)} are)")
    if original is None:
        original = rope.integer("original_max_position_embeddings", *declared.CONTEXT, default=context)
    spec = RopeSpec(base=base, layout=family.layout, columns=columns)
    if kind == "proportional":
        spec = replace(spec, **_proportional(rope, head_dim // 2))
    elif kind == "longrope":
        spec = replace(spec, **_longrope(rope, (columns or head_dim) // 2, original, context))
    elif kind not in ("default", "dynamic"):  # dynamic: stretched beyond the model's context alone
        spec = replace(spec, scaling=kind, factor=rope.number("factor", *declared.ROPE_FACTOR))
    if kind == "llama3":
        spec = replace(spec, **_llama3(rope, original))
    if kind == "yarn":
        spec = replace(spec, **_yarn(rope, original, spec.factor))
    if family.temperature is None:
        return spec
    beta = rope.number(family.temperature[0], *declared.TEMPERATURE)
    return replace(spec, temperature=beta, original_context=original) if beta else spec


def _stretch(rope: Fields, columns: int) -> float:
    """What a base is multiplied by so that the slowest pair turns so many times as slowly (NTK-aware)."""
    alpha: float = rope.number("alpha", 0.0, declared.ROPE_FACTOR[1], default=0.0)
    return alpha ** (columns / (columns - 2)) if alpha and columns > 2 else 1.0


def _proportional(rope: Fields, pairs: int) -> dict[str, Any]:
    """Some of the first pairs turn, as if all of the head did."""
    part = rope.number("partial_rotary_factor", 0.0, 1.0, default=1.0)
    factor = rope.number("factor", *declared.ROPE_FACTOR, default=1.0)
    turning = int(part * pairs)
    return {"scaling": "factors", "factors": (factor,) * turning + (_STILL,) * (pairs - turning)}


def _llama3(rope: Fields, original: int) -> dict[str, Any]:
    low = rope.number("low_freq_factor", 1e-3, 1e3)
    high = rope.number("high_freq_factor", 1e-3, 1e3)
    if low >= high:
        rope.fail("high_freq_factor", f"({high:g}) must be above low_freq_factor ({low:g})")
    return {"original_context": original, "low_factor": low, "high_factor": high}


def _yarn(rope: Fields, original: int, factor: float) -> dict[str, Any]:
    return {
        "original_context": original,
        "beta_fast": rope.number("beta_fast", 1e-3, 1e6, default=32.0),
        "beta_slow": rope.number("beta_slow", 1e-3, 1e6, default=1.0),
        "truncated": rope.boolean("truncate", default=True),
        "attention_factor": _attention_factor(rope, factor),
    }


def _attention_factor(rope: Fields, factor: float) -> float | None:
    """YaRN's factor on queries and keys; None for the paper's own (see `rope.attention_factor`)."""
    explicit: float | None = rope.number("attention_factor", 1e-3, 1e3, default=None)
    mscale: float = rope.number("mscale", 0.0, 1e3, default=0.0)
    mscale_all: float = rope.number("mscale_all_dim", 0.0, 1e3, default=0.0)
    if explicit is not None or not mscale or not mscale_all:
        return explicit
    return yarn_growth(factor, mscale) / yarn_growth(factor, mscale_all)


def _longrope(rope: Fields, pairs: int, original: int, context: int) -> dict[str, Any]:
    """LongRoPE (arXiv 2402.13753): what stretches, and by how much it does unless that is said."""
    factor = rope.number("factor", *declared.ROPE_FACTOR, default=context / original)
    growth = math.sqrt(1 + math.log(max(factor, 1.0)) / math.log(original))
    return {
        "scaling": "longrope",
        "original_context": original,
        "factors": _divisors(rope, "long_factor", pairs),
        "short_factors": _divisors(rope, "short_factor", pairs),
        "attention_factor": rope.number("attention_factor", 1e-3, 1e3, default=growth),
    }


def _divisors(rope: Fields, name: str, pairs: int) -> tuple[float, ...]:
    """A positive number for each pair of columns."""
    values = rope.get(name)
    if not isinstance(values, list) or len(values) != pairs:
        rope.fail(name, f"must list a number for each of the {pairs} pairs of columns that rotate")
    for value in values:
        low, high = declared.ROPE_FACTOR
        if type(value) not in (int, float) or not low <= value <= high:
            rope.fail(name, f"must hold numbers in [{low:g}, {high:g}], not {shown(value)}")
    return tuple(float(value) for value in values)
