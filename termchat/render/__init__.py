"""Markdown to terminal rows, incrementally: a reply grows, its closed blocks stay as they are.

`Document` is the entry: append text, lay out for a width, read rows. It knows no widgets and no colours;
`Palette` turns the style names in its rows into a theme's colours.
"""

from .document import Document
from .marks import Mark, Marks
from .strips import Palette, Row

__all__ = ["Document", "Mark", "Marks", "Palette", "Row"]
