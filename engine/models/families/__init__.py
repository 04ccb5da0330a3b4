"""The families of models that can be loaded. Each module here is one, and its `FAMILY` says all about it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ..family import Family


def discover() -> dict[str, Family]:
    """The families of this folder, by the names of their modules."""
    names = sorted(module.name for module in iter_modules(__path__))
    return {name: import_module(f"{__name__}.{name}").FAMILY for name in names}


FAMILIES = discover()


def family_of_folder(model_type: str) -> Family | None:
    """The family that config.json's model_type names."""
    return next((family for family in FAMILIES.values() if model_type in family.model_types), None)


def family_of_gguf(architecture: str) -> Family | None:
    """The family that a GGUF file's general.architecture names."""
    return next((family for family in FAMILIES.values() if architecture in family.architectures), None)
