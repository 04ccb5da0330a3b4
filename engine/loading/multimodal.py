"""The text part of a multimodal model's folder: its configuration and its tensors."""

from __future__ import annotations

from collections.abc import Mapping

from ..models import families
from ..models.family import Family
from . import declared
from .fields import Fields, shown
from .tensors import Tensor
from .usual_names import by_usual_names

_OTHER_PARTS = (
    "vision_tower",
    "vision_model",
    "vision_embed_tokens",
    "multi_modal_projector",
    "visual",
    "embed_vision",
    "audio_tower",
    "embed_audio",
)
"""Parts of models besides the text's, as the first or second word of their tensors' names."""


def text_config(config: Fields) -> tuple[Family, Fields]:
    """The family a config.json names, and the fields that describe its text.

    Those are the file's own, or below text_config where a model has other parts. Raises
    EngineError(model_invalid).
    """
    family = declared.folder_family(config)
    outer = config.string("model_type")
    text = config.mapping("text_config") if outer in family.multimodal else None
    if text is None:
        return family, _with_defaults(config, family)
    name = text.string("model_type", default=None)
    if name is not None and name not in family.model_types:
        found = (each for each in families.discover(name) if name in each.model_types)
        inner = next((each for each in found if outer in each.multimodal), None)
        if inner is None:
            text.fail("model_type", f"{shown(name)} is not supported in a model of the type {shown(outer)}")
        family = inner
    return family, _with_defaults(text, family)


def _with_defaults(config: Fields, family: Family) -> Fields:
    """With what the file leaves out or calls otherwise, by its usual name."""
    defaults = {config.prefix + name: value for name, value in family.defaults.items()}
    renamed = {
        config.prefix + usual: config.values[config.prefix + alias]
        for alias, usual in family.aliases.items()
        if config.has(alias)
    }
    return config._replace(values={**defaults, **renamed, **config.values})


def text_tensors(
    config: Fields, family: Family, stored: Mapping[str, Tensor]
) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
    """A folder's tensors by their names in a model of text alone, and the parts that are left out."""
    left_out: dict[str, None] = {}
    if config.string("model_type") in family.multimodal:
        part_of = {name: name.removeprefix("model.").partition(".")[0] for name in stored}
        left_out = dict.fromkeys(part for part in part_of.values() if part in _OTHER_PARTS)
        stored = {name: tensor for name, tensor in stored.items() if part_of[name] not in left_out}
    return by_usual_names(config.path, family, stored), tuple(left_out)
