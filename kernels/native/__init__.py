"""Compute kernels in C++17 for the CPU: AVX-512 VNNI, AVX2 or portable, all with the same bits."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["available", "unavailable_reason"]


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
