"""What the files of a model declare about it, whatever their format, and what they may declare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..models import families
from ..models.family import Family, Naming
from ..models.spec import LayerSpec, ModelSpec, RopeSpec
from .fields import Fields, shown
from .other_models import what_it_is

# Sizes: far above any model in use, far below harm.
LAYERS = (1, 1 << 10)
WIDTH = (1, 1 << 17)
HEADS = (1, 1 << 12)
HEAD_DIM = (2, 1 << 12)
FEED_FORWARD = (1, 1 << 20)
VOCABULARY = (1, 1 << 22)
CONTEXT = (2, 1 << 24)
WINDOW = (1, (1 << 31) - 1)
NORM_EPS = (0.0, 1.0)
ROPE_BASE = (2.0, 1e15)
ROPE_FACTOR = (1e-3, 1e6)
NUMBER = (1e-6, 1e6)
TEMPERATURE = (0.0, 1e3)


def check_relations(spec: ModelSpec, fields: Fields) -> None:
    """Refuse sizes that contradict each other."""
    for sizes in dict.fromkeys(spec.sizes(layer) for layer in range(len(spec.layers))):
        if sizes.heads % sizes.kv_heads:
            fields.refuse(f"{sizes.kv_heads} key-value heads do not divide {sizes.heads} query heads")
        if sizes.head_dim % 2:
            fields.refuse(f"a head size of {sizes.head_dim} is odd; rotary embedding needs an even one")
    for rope in spec.ropes:
        if rope.scaling == "yarn" and rope.beta_fast <= rope.beta_slow:
            fields.refuse(f"beta_fast {rope.beta_fast:g} must be above beta_slow {rope.beta_slow:g}")
        if rope.temperature and rope.columns is not None:  # columns that do not rotate are copied as they are
            fields.refuse("a temperature of queries together with partial rotation is not supported")


def head_dims(fields: Fields, layers: Sequence[LayerSpec], head_dim: int) -> tuple[int, int]:
    """Columns of a head, of layers that see all keys and of those with a window, which share a rotation."""
    found = []
    for sees_all in (True, False):
        kinds = {layer.head_dim or head_dim for layer in layers if (layer.window is None) is sees_all}
        if len(kinds) > 1:
            sizes = " and ".join(map(str, sorted(kinds)))
            fields.refuse(f"heads of {sizes} columns in layers of one kind are not supported")
        found.append(kinds.pop() if kinds else head_dim)
    return found[0], found[1]


def usable_context(declared: int, rope: RopeSpec) -> int:
    """Tokens a model can hold: files that add YaRN afterwards still declare the length it was trained for."""
    if rope.scaling != "yarn":
        return declared
    return min(max(declared, int(rope.factor * rope.original_context)), CONTEXT[1])


class Declared(NamedTuple):
    """biases: roles of the biases that must be there. tied: the head is the embedding.

    tied is None where nothing is said: then a model is tied exactly if it has no head of its own. guessing:
    layers behind the last one, which are left out.
    """

    family: Family
    spec: ModelSpec
    biases: frozenset[str]
    tied: bool | None = None
    guessing: int = 0


def gguf_family(general: Fields) -> Family:
    """The family whose architecture GGUF metadata names. Raises EngineError(model_invalid)."""
    return _family(general, "general.architecture", lambda family: family.architectures)


def folder_family(config: Fields) -> Family:
    """The family whose model_type a config.json names, its own or that of the model whose text part it is.

    Raises EngineError(model_invalid).
    """
    return _family(config, "model_type", lambda family: (*family.model_types, *family.multimodal))


def _family(fields: Fields, key: str, names_of: Callable[[Family], tuple[str, ...]]) -> Family:
    name = fields.string(key)
    family = next((family for family in families.discover(name) if name in names_of(family)), None)
    if family is None:
        if what := what_it_is(name):
            fields.fail(key, f"{shown(name)} is not supported: {what}")
        # The text of a multimodal model has a name of its own that people do not know it by.
        known = sorted({names[-1] for each in families.discover() if (names := names_of(each))})
        fields.fail(key, f"{shown(name)} is not supported ({', '.join(known)} are)")
    return family


def last_of(fields: Fields, option: str, default: int, layers: int) -> list[bool]:
    """Whether a layer is the last of so many, by an option of the file (if it has a name) or its default."""
    count = fields.integer(option, 1, LAYERS[1], default=default) if option else default
    return [(layer + 1) % count == 0 for layer in range(layers)]


def guessing(fields: Fields, family: Family, naming: Naming) -> int:
    """How many layers guess further tokens."""
    if family.guessing is None:
        return 0
    key = family.guessing[0 if naming == "huggingface" else 1]
    return int(fields.integer(key, 0, LAYERS[1], default=0))


def with_options(spec: ModelSpec, fields: Fields, family: Family, naming: Naming) -> ModelSpec:
    """The specification with the numbers that this family's files declare besides."""
    for name, option in family.options.items():
        key = option.config if naming == "huggingface" else option.metadata
        value: Any = fields.number(key, *NUMBER, default=None) if key else None
        if value is not None:
            value = option.value(value)
        elif not (option.null and fields.has(key)):
            value = option.default(spec) if callable(option.default) else option.default
        changes: dict[str, Any] = {name: value}
        spec = replace(spec, **changes)
    return spec
