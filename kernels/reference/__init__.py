"""Every operation in plain torch, on any device: what other backends are measured against, and the fallback."""

from .backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
