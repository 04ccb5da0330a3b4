"""`termchat.sanitize`, under the name the renderer knows it by."""

from termchat.sanitize import Sanitizer, sanitize

__all__ = ["Sanitizer", "sanitize"]
