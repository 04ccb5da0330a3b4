"""The families of models that can be loaded. Each module here is one, and its `FAMILY` says all about it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from ..family import Family


def discover(first: str = "") -> Iterator[Family]:
    """All families, that of the module `first` before the others: each is imported when it is its turn."""
    names = sorted((module.name for module in iter_modules(__path__)), key=lambda name: (name != first, name))
    return (import_module(f"{__name__}.{name}").FAMILY for name in names)


def family_of_folder(model_type: str) -> Family | None:
    """The family that config.json's model_type names."""
    return next((family for family in discover(model_type) if model_type in family.model_types), None)


def family_of_gguf(architecture: str) -> Family | None:
    """The family that a GGUF file's general.architecture names."""
    return next((family for family in discover(architecture) if architecture in family.architectures), None)
