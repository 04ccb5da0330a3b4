"""Backends by name. Each is imported when it is asked for, as its libraries are slow to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import cuda
from .interface import Backend, BackendSettings
from .machine import free_memory


class Choice(NamedTuple):
    """What `auto` is here.

    why: what keeps a faster backend from being used, "" if nothing does; mend: what to do about it. news:
    nobody has asked for it, so it is worth a word.
    """

    name: str
    why: str = ""
    mend: str = ""
    news: bool = False


def automatic(settings: BackendSettings) -> Choice:
    """The fastest backend that runs here: a GPU that computes, else native, else reference."""
    from .native import can_compute, unavailable_reason

    hindrance = None
    if settings.device == "auto" and (files := cuda.devices()):
        hindrance = cuda.obstacle()
        if hindrance is None:
            return Choice("reference")
    if settings.device not in ("auto", "cpu"):
        return Choice("reference")
    if not can_compute(settings.dtype):
        return Choice(
            "reference",
            f"the compiled backend computes in float32 and int8, not in dtype {settings.dtype!r}",
            "leave --dtype and the setting engine.dtype at auto",
        )
    if unavailable_reason():
        mend = "install termchat again where a C++17 compiler is"
        return Choice("reference", unavailable_reason(), mend, news=True)
    if hindrance is None:
        return Choice("native")
    why = f"the GPU {files[0]} is not used: {hindrance.why}"
    return Choice("native", why, hindrance.mend, news=not hindrance.wanted)


def _reference(settings: BackendSettings) -> Backend:
    try:
        from .reference import ReferenceBackend
    except ImportError as error:
        raise ValueError(f"backend reference needs torch, which can't be imported: {error}") from error
    return ReferenceBackend(settings)


def _native(settings: BackendSettings) -> Backend:
    from .native.backend import NativeBackend

    return NativeBackend(settings)


def _triton(settings: BackendSettings) -> Backend:
    from .triton import unavailable_reason

    if reason := unavailable_reason():
        raise ValueError(f"backend triton: {reason}; use backend auto, native or reference")
    from .triton.backend import TritonBackend

    return TritonBackend(settings)


_BACKENDS: dict[str, Callable[[BackendSettings], Backend]] = {
    "reference": _reference,
    "native": _native,
    "triton": _triton,
}


def _named(name: str, settings: BackendSettings) -> str:
    name = automatic(settings).name if name == "auto" else name
    if name not in _BACKENDS:
        raise ValueError(f"backend must be one of auto, {', '.join(_BACKENDS)}, not {name!r}")
    return name


def open_backend(name: str, settings: BackendSettings) -> Backend:
    """The backend of this name; `auto` is the fastest that runs here.

    ValueError: no such backend, its libraries are missing, or it can't serve the settings.
    """
    return _BACKENDS[_named(name, settings)](settings)


def free_bytes(name: str, settings: BackendSettings) -> int:
    """What a backend's `free_bytes` would be, without opening it. ValueError as `open_backend`."""
    if _named(name, settings) == "native" or settings.device == "cpu":
        return free_memory()
    from .reference.device import find_device
    from .reference.device import free_bytes as free_of_device

    return free_of_device(find_device(settings.device))
