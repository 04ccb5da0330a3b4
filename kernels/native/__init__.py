"""Compute kernels in C++17 for the CPU: AMX, AVX-512 VNNI, AVX2 or portable, all with the same bits."""

from __future__ import annotations

from functools import lru_cache

from .. import cuda

__all__ = ["available", "can_compute", "chosen", "reserve", "unavailable_reason"]


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


def can_compute(dtype: str) -> bool:
    """Whether this backend has the arithmetic that is asked for."""
    return dtype in ("auto", "float32")


def chosen(device: str, dtype: str) -> bool:
    """Whether `auto` is known to be this backend without asking torch, which takes longer than an answer."""
    on_cpu = device == "cpu" or (device == "auto" and (not cuda.devices() or cuda.ruled_out() is not None))
    return on_cpu and can_compute(dtype) and available()


def reserve(nbytes: int) -> None:
    """Have memory for the next model made ready, on a thread of its own, while the caller goes on.

    Needs an available library. What no model has taken when its first program is captured is freed.
    """
    from .library import load

    load().native_reserve(nbytes)
