"""The text part of a multimodal model's folder: its configuration and its tensors."""

from __future__ import annotations

from collections.abc import Mapping

from ..models import families
from ..models.family import Family
from . import declared
from .fields import Fields, invalid, shown
from .tensors import Tensor

_TEXT = "language_model."
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
    """A folder's tensors under the names they have in a model of text alone, and the parts that are left out.

    Files have the text's part below `language_model`, before or behind `model`, or at the top.
    """
    if config.string("model_type") not in family.multimodal:
        return stored, ()
    text: dict[str, Tensor] = {}
    left_out: dict[str, None] = {}
    for name, tensor in stored.items():
        part = name.removeprefix("model.").partition(".")[0]
        if part in _OTHER_PARTS:
            left_out[part] = None
            continue
        plain = name.replace(_TEXT, "", 1) if name.removeprefix("model.").startswith(_TEXT) else name
        if plain in text:
            raise invalid(config.path, f"tensor {shown(plain)} is stored twice, by two names")
        text[plain] = tensor
    return text, tuple(left_out)
