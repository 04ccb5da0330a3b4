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
