"""Backends by name. Each is imported when it is asked for, as its libraries are slow to import."""

from __future__ import annotations

from collections.abc import Callable

from .interface import Backend, BackendSettings


def _reference(settings: BackendSettings) -> Backend:
    try:
        from .reference import ReferenceBackend
    except ImportError as error:
        raise ValueError(f"backend reference needs torch, which can't be imported: {error}") from error
    return ReferenceBackend(settings)


def _native(settings: BackendSettings) -> Backend:
    from .native.backend import NativeBackend

    return NativeBackend(settings)


def _auto(settings: BackendSettings) -> Backend:
    """Native where it is to be had, reference elsewhere."""
    from .native import chosen

    return _native(settings) if chosen(settings.device, settings.dtype) else _reference(settings)


_BACKENDS: dict[str, Callable[[BackendSettings], Backend]] = {
    "auto": _auto,
    "reference": _reference,
    "native": _native,
}


def open_backend(name: str, settings: BackendSettings) -> Backend:
    """The backend of this name; `auto` is the fastest that runs here.

    ValueError: no such backend, its libraries are missing, or it can't serve the settings.
    """
    if name not in _BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(_BACKENDS)}, not {name!r}")
    return _BACKENDS[name](settings)
