"""What the files of a model declare about it, whatever their format, and what they may declare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..models.families import FAMILIES, Family
from ..models.spec import ModelSpec, RopeSpec
from .fields import Fields, shown

# Sizes: far above any model in use, far below harm.
LAYERS = (1, 1 << 10)
WIDTH = (1, 1 << 17)
HEADS = (1, 1 << 12)
HEAD_DIM = (2, 1 << 12)
FEED_FORWARD = (1, 1 << 20)
VOCABULARY = (1, 1 << 22)
CONTEXT = (2, 1 << 24)
WINDOW = (1, 1 << 31)
NORM_EPS = (0.0, 1.0)
ROPE_BASE = (2.0, 1e15)
ROPE_FACTOR = (1e-3, 1e6)


def check_relations(spec: ModelSpec, fields: Fields) -> None:
    """Refuse sizes that contradict each other."""
    if spec.heads % spec.kv_heads:
        fields.refuse(f"{spec.kv_heads} key-value heads do not divide {spec.heads} query heads")
    if spec.head_dim % 2:
        fields.refuse(f"a head size of {spec.head_dim} is odd; rotary embedding needs an even one")
    if spec.rope.scaling == "yarn" and spec.rope.beta_fast <= spec.rope.beta_slow:
        fields.refuse(f"beta_fast {spec.rope.beta_fast:g} must be above beta_slow {spec.rope.beta_slow:g}")


def usable_context(declared: int, rope: RopeSpec) -> int:
    """Tokens a model can hold: files that add YaRN afterwards still declare the length it was trained for."""
    if rope.scaling != "yarn":
        return declared
    return min(max(declared, int(rope.factor * rope.original_context)), CONTEXT[1])


class Declared(NamedTuple):
    """biases: roles of the biases that must be there. tied: the head is the embedding.

    tied is None where nothing is said: then a model is tied exactly if it has no head of its own.
    """

    spec: ModelSpec
    biases: frozenset[str]
    tied: bool | None = None


def _refuse(fields: Fields, key: str, name: str, known: Iterable[str]) -> None:
    fields.fail(key, f"{shown(name)} is not supported ({', '.join(known)} are)")


def gguf_family(general: Fields) -> tuple[str, Family]:
    """The architecture that GGUF metadata names. Raises EngineError(model_invalid)."""
    architecture = general.string("general.architecture")
    if architecture not in FAMILIES or FAMILIES[architecture].gguf_layout is None:
        known = [name for name, entry in FAMILIES.items() if entry.gguf_layout is not None]
        _refuse(general, "general.architecture", architecture, known)
    return architecture, FAMILIES[architecture]


def folder_family(config: Fields) -> tuple[str, Family]:
    """The model_type that a config.json names. Raises EngineError(model_invalid)."""
    model_type = config.string("model_type")
    if model_type not in FAMILIES:
        _refuse(config, "model_type", model_type, FAMILIES)
    return model_type, FAMILIES[model_type]
