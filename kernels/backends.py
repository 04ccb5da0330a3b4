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


_BACKENDS: dict[str, Callable[[BackendSettings], Backend]] = {
    "auto": _reference,
    "reference": _reference,
}


def open_backend(name: str, settings: BackendSettings) -> Backend:
    """The backend of this name; `auto` is the fastest that runs here.

    ValueError: no such backend, its libraries are missing, or it can't serve the settings.
    """
    if name not in _BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(_BACKENDS)}, not {name!r}")
    return _BACKENDS[name](settings)
