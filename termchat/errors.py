"""The base of every error a user can act on."""

from __future__ import annotations


class UserError(Exception):
    """One plain sentence: what happened, which file or option, what to do. Shown without a traceback."""
