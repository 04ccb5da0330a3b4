"""Lines of text that are set often: only those that have changed are made and drawn again."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.content import Content
from textual.geometry import Region
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from .kept_rows import KeptRows


class Lines(KeptRows, Widget):
    """Lines; one that is too long ends in an ellipsis.

    grow: as high as it has lines; otherwise as the style sheet says.
    """

    def __init__(self, *, grow: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.auto_links = False
        self._grow = grow
        self._lines: list[Content] = []
        if grow:
            self.styles.height = 0

    def show_lines(self, lines: Sequence[Content]) -> None:
        """Show these, in place of what was there."""
        before, self._lines = self._lines, list(lines)
        both = min(len(before), len(lines))
        changed = [y for y in range(both) if not same(before[y], lines[y])]
        changed += range(both, max(len(before), len(lines)))
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))
        if self._grow and len(lines) != len(before):
            self.styles.height = len(lines)  # a layout of the screen costs more than all else

    @property
    def line_count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        """One line."""
        width, style = self.size.width, self.visual_style
        line = self._lines[y] if y < len(self._lines) else Content("")
        if line.cell_length > width:
            line = line.truncate(width, ellipsis=True)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            start, end = span
            marked = Style.from_styles(self.screen.get_component_styles("screen--selection"))
            line = line.stylize(marked, start, len(line) if end == -1 else end)
        return row_of(line, style).apply_offsets(0, y).adjust_cell_length(width, style.rich_style)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text."""
        return selection.extract("\n".join(line.plain for line in self._lines)), "\n"


def row_of(line: Content, style: Style) -> Strip:
    """A line as a row. Textual's own way also wraps and aligns, and takes several times as long."""
    segments = [Segment(text, part.rich_style) for text, part in line.render(style, "")]
    return Strip(segments, line.cell_length)


def same(one: Content, other: Content) -> bool:
    """Whether they look the same; two contents are equal if only their texts are."""
    return one.plain == other.plain and one.spans == other.spans
