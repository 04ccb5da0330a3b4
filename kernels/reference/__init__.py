"""Every operation in plain torch, on any device: the measure of other backends, and the fallback."""

from .backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
