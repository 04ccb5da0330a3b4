"""Backends by name. Each is imported when it is asked for, as its libraries are slow to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from . import cuda
from .interface import Backend, BackendSettings
from .machine import free_memory

Told = Callable[[str], None]
"""Told in words what takes long; what it raises ends that."""


class Choice(NamedTuple):
    """What `auto` is here.

    device: what it computes on, by name. why: what keeps a faster backend from being used, "" if nothing
    does; mend: what to do about it. news: nobody has asked for it, so it is worth a word.
    """

    name: str
    device: str
    why: str = ""
    mend: str = ""
    news: bool = False


def automatic(settings: BackendSettings) -> Choice:
    """The fastest backend that runs here: a GPU that computes, else native, else reference."""
    from .native import can_compute, unavailable_reason

    device, hindrance = settings.device, None
    if device in ("auto", "cuda") and cuda.devices():
        chosen = cuda.choose()
        if chosen.gpu is not None:
            return _on_gpu(f"cuda:{chosen.gpu.number}")
        hindrance = chosen.obstacle
    if device not in ("auto", "cpu"):
        return _on_gpu(device)
    if not can_compute(settings.dtype):
        return Choice(
            "reference",
            "cpu",
            f"the compiled backend computes in float32 and int8, not in dtype {settings.dtype!r}",
            "leave --dtype and the setting engine.dtype at auto",
        )
    if unavailable_reason():
        mend = "install termchat again where a C++17 compiler is"
        return Choice("reference", "cpu", unavailable_reason(), mend, news=True)
    if hindrance is None:
        return Choice("native", "cpu")
    why = f"the GPU {cuda.devices()[0]} is not used: {hindrance.why}"
    return Choice("native", "cpu", why, hindrance.mend, news=not hindrance.wanted)


def _on_gpu(device: str) -> Choice:
    """Kernels for CUDA GPUs, where they can be compiled; plain torch on others."""
    from .triton import interpreted, unavailable_reason

    if not device.startswith("cuda"):
        return Choice("reference", device)
    if interpreted():
        why = "TRITON_INTERPRET is set, so GPU kernels would be interpreted"
        return Choice("reference", device, why, "unset it", news=True)
    if reason := unavailable_reason():
        mend = "install triton 3.4 or newer, which is for Linux"
        return Choice("reference", device, reason, mend, news=True)
    return Choice("triton", device)


def _reference(settings: BackendSettings, told: Told) -> Backend:
    try:
        from .reference import ReferenceBackend
    except Exception as error:  # torch raises whatever its libraries do
        raise ValueError(f"backend reference needs torch, which can't be imported: {error}") from error
    return ReferenceBackend(settings)


def _native(settings: BackendSettings, told: Told) -> Backend:
    from .native.backend import NativeBackend

    return NativeBackend(settings)


def _triton(settings: BackendSettings, told: Told) -> Backend:
    from .triton import unavailable_reason

    if reason := unavailable_reason():
        raise ValueError(f"backend triton: {reason}; use backend auto, native or reference")
    from .triton.backend import TritonBackend

    return TritonBackend(settings, told)


_BACKENDS: dict[str, Callable[[BackendSettings, Told], Backend]] = {
    "reference": _reference,
    "native": _native,
    "triton": _triton,
}


def resolve(name: str, settings: BackendSettings) -> tuple[str, BackendSettings]:
    """A backend's name and its settings with no device left to be chosen. ValueError: no such backend."""
    if name == "auto":
        choice = automatic(settings)
        return choice.name, replace(settings, device=choice.device)
    if name not in _BACKENDS:
        raise ValueError(f"backend must be one of auto, {', '.join(_BACKENDS)}, not {name!r}")
    if settings.device in ("auto", "cuda") and name != "native" and (gpu := cuda.choose().gpu) is not None:
        return name, replace(settings, device=f"cuda:{gpu.number}")
    return name, replace(settings, device="cpu") if settings.device == "auto" else settings


def open_backend(name: str, settings: BackendSettings, told: Told = lambda words: None) -> Backend:
    """The backend of this name; `auto` is the fastest that runs here. told: of a GPU's first check.

    ValueError: no such backend, its libraries are missing, or it can't serve the settings. MemoryError: the
    device has no room for it at all.
    """
    name, settings = resolve(name, settings)
    return _BACKENDS[name](settings, told)


def free_bytes(name: str, settings: BackendSettings) -> int:
    """What a backend's `free_bytes` would be, without opening it. ValueError as `open_backend`."""
    name, settings = resolve(name, settings)
    if name == "native" or settings.device == "cpu":
        return free_memory()
    from .reference.device import find_device
    from .reference.device import free_bytes as free_of_device
    from .triton import RESERVED_BYTES

    free = free_of_device(find_device(settings.device))
    return max(0, free - RESERVED_BYTES) if name == "triton" else free
