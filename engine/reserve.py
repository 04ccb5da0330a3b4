"""Memory for a model's weights, made ready while the program still imports what it needs to load them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kernels.machine import free_memory
from kernels.native import chosen, reserve

from .config import EngineConfig

_VALUES = 8 << 20
"""Bytes for the values of a step, besides the weights."""

_reserved = 0

_LARGEST = 1 << 29
"""Bytes: larger models take so long to read that pages are no matter, and may become smaller in memory."""


def reserve_memory(config: EngineConfig) -> None:
    """Begin with what takes long and needs nothing but the size of the file; numpy is not imported.

    Does nothing where the model is no single file or the native backend will not be used.
    """
    chosen_otherwise = config.backend in ("reference", "triton") or config.ranks > 1
    if chosen_otherwise or not isinstance(config.model, (str, Path)):
        return
    try:
        status = os.stat(config.model)
    except (OSError, ValueError):  # ValueError: a path with a null character
        return  # loading it will say what is wrong
    if stat.S_ISREG(status.st_mode) and chosen(config.device, config.dtype):
        global _reserved
        wanted = min(status.st_size + _VALUES, _LARGEST)
        if wanted <= free_memory():  # else the load says what does not fit
            _reserved = wanted
            reserve(_reserved)


def take_reserved() -> int:
    """Bytes that were made ready for the model that is loaded now: no longer free, but for it."""
    global _reserved
    taken, _reserved = _reserved, 0
    return taken
