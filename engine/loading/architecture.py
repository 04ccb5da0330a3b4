"""Which family of models a file belongs to, by its own word; others are refused by their name."""

from __future__ import annotations

from collections.abc import Iterable

from ..models.families import FAMILIES, Family
from .fields import Fields, shown


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
