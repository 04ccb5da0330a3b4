"""GGUF files that lie beside a model and are none that could be talked to, by their names."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_PARTS = re.compile(r"(^|[-._])(mmproj|imatrix|vocab)([-._]|$)", re.IGNORECASE)
_ADAPTERS = re.compile(r"(^|[-._])(lora|adapter)([-._]|$)", re.IGNORECASE)
_MERGED = re.compile(r"(^|[-._])merged?([-._]|$)", re.IGNORECASE)
_HELPERS = re.compile(r"(^|[-._])(draft|drafter|eagle3?|mtp)([-._]|$)", re.IGNORECASE)


def is_no_model(name: str) -> bool:
    """Whether a file is a part or an addition to a model, so that it can't be loaded by itself."""
    name = PurePosixPath(name).name
    if _ADAPTERS.search(name) and not _MERGED.search(name):  # one that was merged is in a whole model
        return True
    return _PARTS.search(name) is not None


def is_companion(name: str) -> bool:
    """Whether a file isn't meant where a model is: as `is_no_model`, or it guesses for another one."""
    return is_no_model(name) or _HELPERS.search(PurePosixPath(name).name) is not None
