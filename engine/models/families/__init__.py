"""The families of models that can be loaded. Each module here is one, and its `FAMILY` says all about it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ..family import Family

FAMILIES: dict[str, Family] = {
    module.name: import_module(f"{__name__}.{module.name}").FAMILY for module in iter_modules(__path__)
}
"""By the names of their modules."""


def family_of_folder(model_type: str) -> Family | None:
    """The family that config.json's model_type names."""
    return next((family for family in FAMILIES.values() if model_type in family.model_types), None)


def family_of_gguf(architecture: str) -> Family | None:
    """The family that a GGUF file's general.architecture names."""
    return next((family for family in FAMILIES.values() if architecture in family.architectures), None)
