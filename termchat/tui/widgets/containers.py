"""Parts of the main screen that stay as they are while text streams in their midst."""

from __future__ import annotations

from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from ...widgets.still import Still


class Columns(Still, Horizontal):
    """Parts side by side, which cover it: it is blank, so that its rows need not be composed."""

    BLANK = True


class Rows(Still, Vertical):
    """Parts below each other, which cover it."""

    BLANK = True


class Label(Still, Static):
    """A text that does not change."""
