"""What every widget draws is text and nothing else, whatever it was given: escape codes are taken out."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ...sanitize import visible

_NO_CELLS = str.maketrans("", "", "\t\n")


class SafeText(LineFilter):
    """Draws each unsafe character as a sign (see `sanitize`); `cells` measures them as such.

    A widget gives rows, so a line end in one is a mistake; a tab would move the cursor. Both are left out.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with nothing in them but text."""
        if all(text.isprintable() for text, _, _ in segments):
            return segments
        return [
            Segment(visible(text).translate(_NO_CELLS), style, control) for text, style, control in segments
        ]
