"""Containers that their children cover: blank, so that their rows need not be composed at each change."""

from __future__ import annotations

from textual.containers import Horizontal, Vertical


class Columns(Horizontal):
    """Parts side by side."""

    BLANK = True


class Rows(Vertical):
    """Parts below each other."""

    BLANK = True
