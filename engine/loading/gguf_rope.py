"""The rotations that a GGUF file declares (keys as in ggml's docs/gguf.md)."""

from __future__ import annotations

from dataclasses import replace

from ..models.family import Family
from ..models.rope import attention_factor, yarn_growth
from ..models.spec import RopeSpec
from . import declared
from .fields import Fields, shown
from .gguf import GGUFFile
from .stored import to_vector

FACTORS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
FACTOR_TENSORS = {FACTORS, LONG, SHORT}
"""Tensors that say how frequencies are stretched."""

_KINDS = ("none", "linear", "yarn", "longrope")


def read_ropes(
    file: GGUFFile, model: Fields, family: Family, head_dim: int, context: int
) -> tuple[RopeSpec, RopeSpec]:
    """Rotations of layers that see all keys and of those with a window."""
    turning = model.integer("rope.dimension_count", 1, 1 << 16, default=head_dim)
    if turning != head_dim and family.turning is None:
        model.fail("rope.dimension_count", f"other than the head size ({head_dim}) is not supported")
    if turning > head_dim or turning % 2:
        model.fail("rope.dimension_count", f"must be even and at most the head size ({head_dim})")
    base = model.number("rope.freq_base", *declared.ROPE_BASE, default=10000.0)
    columns = None if turning == head_dim else turning
    plain = RopeSpec(base=base, layout=family.gguf_layout, columns=columns)
    full = _attended(model, _scaled(file, model, family, plain, turning, context))
    if family.temperature is not None:
        beta = model.number(family.temperature[1], *declared.TEMPERATURE, default=0.0)
        full = replace(full, temperature=beta, original_context=_original(model, context)) if beta else full
    if (source := family.local_base) is None:
        return full, full
    if family.varied is not None:  # a window's layers have heads of their own, which turn whole
        own = model.integer("attention.key_length_swa", *declared.HEAD_DIM)
        if model.integer("rope.dimension_count_swa", 1, 1 << 16, default=own) != own:
            model.fail("rope.dimension_count_swa", f"other than the head size ({own}) is not supported")
    local = model.number(source.metadata, *declared.ROPE_BASE, default=source.default)
    return full, replace(plain, base=base if local is None else local)


def _original(model: Fields, context: int) -> int:
    """Tokens the model was first trained for."""
    name = "rope.scaling.original_context_length"
    return int(model.integer(name, *declared.CONTEXT, default=context))


def _scaled(
    file: GGUFFile, model: Fields, family: Family, plain: RopeSpec, turning: int, context: int
) -> RopeSpec:
    factor = model.number("rope.scaling.factor", 0.0, 1e6, default=None)
    if factor is None:
        factor = model.number("rope.scale_linear", 0.0, 1e6, default=0.0)
    kind = model.string("rope.scaling.type", default="linear")
    if kind not in _KINDS:
        model.fail("rope.scaling.type", f"{shown(kind)} is not supported ({', '.join(_KINDS)} are)")
    # A factor of 0 stands for none in ggml, and for LongRoPE all is in the tensors.
    scaled = kind in ("linear", "yarn") and factor not in (0.0, 1.0)
    given = {name: _factors(file, model, name, turning) for name in (FACTORS, LONG, SHORT)}
    found = [name for name, values in given.items() if values]
    if found and scaled:
        model.fail("rope.scaling.type", f"{kind!r} together with tensor {found[0]} is not supported")
    if found == [FACTORS] and kind != "longrope":
        return replace(plain, scaling="factors", factors=given[FACTORS])
    if found == [LONG, SHORT]:
        original = _original(model, context)
        return replace(
            plain,
            scaling="longrope",
            factors=given[LONG],
            short_factors=given[SHORT],
            original_context=original,
        )
    if found or kind == "longrope":
        model.refuse(f"LongRoPE needs the tensors {LONG} and {SHORT} and no others of their kind")
    if not scaled:
        return plain
    if factor < declared.ROPE_FACTOR[0]:
        model.fail("rope.scaling.factor", f"must be at least {declared.ROPE_FACTOR[0]:g}, not {factor:g}")
    if kind == "linear":
        return replace(plain, scaling="linear", factor=factor)
    return replace(
        plain,
        scaling="yarn",
        factor=factor,
        original_context=_original(model, context),
        beta_fast=model.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, default=32.0),
        beta_slow=model.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, default=1.0),
        truncated=family.yarn_truncated,
        attention_factor=_yarn_attention(model, factor),
    )


def _factors(file: GGUFFile, model: Fields, name: str, turning: int) -> tuple[float, ...]:
    """Divisors of the frequencies, as files of Llama 3.1 and of Phi carry them; empty without."""
    stored = file.tensors.get(name)
    if stored is None:
        return ()
    if stored.shape != (turning // 2,):
        model.refuse(f"tensor {name} has the shape {stored.shape}, not {(turning // 2,)}")
    try:
        values = to_vector(stored).values
    except ValueError as error:
        model.refuse(str(error))
    if not (values > 0).all():
        model.refuse(f"tensor {name} holds values that are not positive numbers")
    return tuple(values.tolist())


def _yarn_attention(model: Fields, factor: float) -> float | None:
    """YaRN's factor on queries and keys: as given, or by a growth of keys' and queries' own that is taken out
    again; None for the paper's own.
    """
    given: float | None = model.number("rope.scaling.yarn_attn_factor", 1e-3, 1e3, default=None)
    taken: float = model.number("rope.scaling.yarn_log_multiplier", 0.0, 1e3, default=0.0)
    if given is not None or not taken:
        return given
    return yarn_growth(factor) / yarn_growth(factor, taken)


def _attended(model: Fields, rope: RopeSpec) -> RopeSpec:
    """With the factor on queries and keys that the file gives besides."""
    scale = model.number("rope.scaling.attn_factor", 1e-3, 1e3, default=1.0)
    return rope if scale == 1.0 else replace(rope, attention_factor=attention_factor(rope) * scale)
