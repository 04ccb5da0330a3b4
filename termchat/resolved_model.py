"""A model that was found, and what of one that is known is on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .elsewhere import PROGRAMS
from .files import size_of
from .hub import PREFIX
from .model_entry import ModelEntry


class ResolvedModel(NamedTuple):
    """A model that can be loaded: its name for people, its file or folder, and its entry if it has one.

    elsewhere: its name is that of another program's model, by which it is found again.
    """

    name: str
    path: Path
    entry: ModelEntry | None
    elsewhere: bool = False

    @property
    def reference(self) -> str:
        """How to find the model again: its name where it is known by one, or its path as it was given.

        Links in it are kept: in the caches of huggingface_hub they lead to files that are named by a hash.
        """
        return self.name if self.entry is not None or self.elsewhere else _absolute(self.path)

    @property
    def title(self) -> str:
        """What people call it, where there is little room."""
        return model_title(self.name) if self.elsewhere or self.name.startswith(PREFIX) else self.name

    @property
    def template_vars(self) -> Mapping[str, Any]:
        """Variables for its chat template."""
        return self.entry.template_vars if self.entry is not None else {}


@lru_cache(64)  # asked for with every drawing
def _absolute(path: Path) -> str:
    return os.path.abspath(path)


class ModelStatus(NamedTuple):
    """An entry and what of it is on this machine. partial: bytes of an unfinished download."""

    entry: ModelEntry
    path: Path | None
    partial: int
    default: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; `size` in bytes, null where not known."""
        entry = self.entry
        size = entry.size
        if self.path is not None and os.path.isfile(self.path) and len(entry.parts) < 2:
            size = size_of(self.path)
        return {
            "name": entry.name,
            "path": str(self.path) if self.path is not None else None,
            "size": size,
            "licence": entry.licence,
            "description": entry.description,
            "default": self.default,
            "partial": self.partial,
            "sources": [str(source) for source in entry.sources],
            "sha256": entry.sha256 or [part.sha256 for part in entry.parts if part.sha256] or None,
            "context_length": entry.context,
            "sampling": dict(entry.sampling),
            "template_vars": dict(entry.template_vars),
            "template": entry.template,
            "quantization": entry.quantization,
            "draft": entry.draft,
        }


def model_title(reference: str) -> str:
    """What people call a model that is found by this name or path: the last part of it, or OWNER/NAME for a
    snapshot's folder in a cache of the Hub (models--OWNER--NAME/snapshots/REVISION). Of a name with a program
    before a colon it is what stands behind the owner.
    """
    if reference.partition(":")[0] in (PREFIX[:-1], *PROGRAMS):
        return reference.partition(":")[2].rpartition("/")[2]
    *_, repository, snapshots, last = ["", "", *reference.rstrip(os.sep).split(os.sep)]
    if snapshots == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/")
    return last
