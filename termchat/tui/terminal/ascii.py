"""A screen of ASCII: what widgets draw with other signs is replaced; texts of users and models are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
else:
    _Base = object

_SIGNS = str.maketrans(
    "╭╮╰╯─│┏┓┗┛━┃▌▸▾•●✓⇣✗‖↑↓←→‹›–…·█▇▆▅▄▃▂▁",
    "++++-|++++=||>v**+vx=^v<><>-..#       ",
)


class Ascii(LineFilter):
    """Draws with ASCII what a widget has drawn; each sign is one cell wide before and after.

    The ends of a scroll bar's thumb are rounded to whole cells: its colour shows where it is.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with signs in ASCII."""
        return [Segment(text.translate(_SIGNS), style, control) for text, style, control in segments]


class AsWritten(_Base):
    """Mixed into a widget, before it: it shows texts as they are, and sees to its own signs."""

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters of the screen, without `Ascii`."""
        return [each for each in super().get_line_filters() if not isinstance(each, Ascii)]
