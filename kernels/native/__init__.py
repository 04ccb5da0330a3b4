"""Compute kernels in C++17 for the CPU: AMX, AVX-512 VNNI, AVX2 or portable, all with the same bits."""

from __future__ import annotations

import os
from functools import lru_cache

__all__ = ["available", "chosen", "reserve", "unavailable_reason"]


@lru_cache(maxsize=1)
def unavailable_reason() -> str:
    """Why the native backend can't be used here, one sentence; empty if it can."""
    from .library import load

    try:
        load()
    except OSError as error:
        return str(error)
    return ""


def available() -> bool:
    """Whether the compiled library is there and loads."""
    return not unavailable_reason()


def chosen(device: str, dtype: str) -> bool:
    """Whether `auto` is this backend: on a CPU, where the library is there and the dtype is its own."""
    # Asking torch for a GPU would take longer than a short answer.
    on_cpu = device == "cpu" or (device == "auto" and not os.path.exists("/dev/nvidia0"))
    return on_cpu and dtype in ("auto", "float32") and available()


def reserve(nbytes: int) -> None:
    """Have memory for the next model made ready, on a thread of its own, while the caller goes on.

    Needs an available library. What no model has taken when its first program is captured is freed.
    """
    from .library import load

    load().native_reserve(nbytes)
