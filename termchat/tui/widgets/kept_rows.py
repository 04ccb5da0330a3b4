"""Rows of text that change and move: a change costs what the changed rows cost.

Textual works out background, borders, padding and effects of a widget again for every row that has changed,
and a row that has scrolled has changed; a new height lays out the whole screen. While text streams in at the
bottom that is most of what an interface does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.style import Style
from textual.color import Color
from textual.containers import Horizontal, Vertical
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

if TYPE_CHECKING:
    _Base = Widget
else:
    _Base = object  # a style sheet's rules come down the first base that is a widget, so this must not be one


class Kept(_Base):
    """Mixed into a widget, before it: its rows are kept from one `refresh` to the next.

    When anything changes on screen, Textual asks all widgets around it for all their rows. They are cached,
    but without filters and what a widget does first, so that asking costs more than the change.
    """

    _styles_kept: dict[str, Style] | None = None
    _kept_rows: tuple[Region, list[Strip]] | None = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows of the widget."""
        if self._kept_rows is None or self._kept_rows[0] != crop:
            self._kept_rows = crop, self.draw_lines(crop)
        return self._kept_rows[1]

    def draw_lines(self, crop: Region) -> list[Strip]:
        """Draw the rows. Those of a blank widget are filtered here, as Textual leaves that out."""
        strips = super().render_lines(crop)
        if not self.BLANK or not strips:
            return strips
        blank = strips[0]
        for each in self.get_line_filters():
            blank = blank.apply_filter(each, self.background_colors[1])
        return [blank] * len(strips)

    def part_style(self, name: str = "") -> Style:
        """The style of the widget, or of a component class on top; Textual forgets them at each refresh."""
        if self._styles_kept is None:
            self._styles_kept = {"": self.rich_style}
        if name not in self._styles_kept:
            part = self.get_component_rich_style(name, partial=True)
            self._styles_kept[name] = self._styles_kept[""] + part
        return self._styles_kept[name]

    def forget(self, regions: Sequence[Region]) -> None:
        """Draw these regions anew; none: everything."""
        self._kept_rows = None

    def refresh(self, *regions: Region, **what: Any) -> Self:
        """Draw again."""
        self.forget(regions)
        return super().refresh(*regions, **what)

    def notify_style_update(self) -> None:
        """Draw in the colours of the new theme."""
        super().notify_style_update()
        self._kept_rows = self._styles_kept = None


class Columns(Kept, Horizontal):
    """Parts side by side, which cover it: it is blank, so that its rows need not be composed."""

    BLANK = True


class Stack(Kept, Vertical):
    """Parts below each other, which cover it."""

    BLANK = True


class Label(Kept, Static):
    """A text that does not change."""


class KeptRows(Kept):
    """Mixed into a widget that draws in `render_line`: of the rows only those are drawn that were refreshed.

    It can have padding.
    """

    _changed: frozenset[int] = frozenset()  # rows to be drawn again; row 0 is the first below the padding
    _blank: Strip | None = None
    _filters: tuple[Sequence[LineFilter], Color]  # as of the blank row, with the background they need

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows of the widget, padding included."""
        if self._changed and self._kept_rows is not None and self._kept_rows[0] == crop:
            strips, top = self._kept_rows[1], crop.y - self.styles.padding.top
            rows = [y for y in self._changed if top <= y < top + len(strips)]
            for y, strip in zip(rows, self._drawn_rows(rows, crop), strict=True):
                strips[y - top] = strip
        self._changed = frozenset()
        return super().render_lines(crop)

    def draw_lines(self, crop: Region) -> list[Strip]:
        """Draw all rows."""
        if self._blank is None or self._blank.cell_length != crop.right:
            self._filters = self.get_line_filters(), self.background_colors[1]
            self._blank = self._filtered(Strip.blank(crop.right, self.part_style()))
        top = self.styles.padding.top
        return self._drawn_rows(range(crop.y - top, crop.bottom - top), crop)

    def draw_rows(self, rows: Sequence[int]) -> list[Strip]:
        """Draw rows of the content, as wide as the widget."""
        assert self._blank is not None, "rows are drawn after all were"
        left = self.styles.padding.left
        return [self._filtered(_padded(self.render_line(y), self._blank, left)) for y in rows]

    def _drawn_rows(self, rows: Sequence[int], crop: Region) -> list[Strip]:
        assert self._blank is not None, "rows are drawn after all were"
        width, height = self.size
        inside = [y for y in rows if 0 <= y < height] if width > 0 else []
        drawn = dict(zip(inside, self.draw_rows(inside), strict=True))
        strips = [drawn.get(y, self._blank) for y in rows]
        return strips if crop.x == 0 else [strip.crop(crop.x, crop.right) for strip in strips]

    def _filtered(self, strip: Strip) -> Strip:
        filters, background = self._filters
        for each in filters:
            strip = strip.apply_filter(each, background)
        return strip

    def forget(self, regions: Sequence[Region]) -> None:
        """Draw the rows of these regions again; none: all."""
        rows = {y for region in regions for y in region.line_range}
        if rows and len(rows) < self.size.height:
            self._changed |= rows
        else:
            super().forget(regions)

    def notify_style_update(self) -> None:
        """Draw in the colours of the new theme."""
        super().notify_style_update()
        self._blank = None


class RowView(KeptRows, ScrollView):
    """A view of many rows. Those on screen are kept while they move, unless something is selected."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._kept: dict[Hashable, Strip] = {}
        self._kept_before: dict[Hashable, Strip] = {}
        self._placing = False

    def row_key(self, y: int) -> Hashable:
        """What row `y` depends on besides theme and width, counted from the top of all rows."""
        raise NotImplementedError

    def draw_lines(self, crop: Region) -> list[Strip]:
        """Draw all rows."""
        same = self._blank is not None and self._blank.cell_length == crop.right
        self._kept_before, self._kept = self._kept if same else {}, {}
        return super().draw_lines(crop)

    def draw_rows(self, rows: Sequence[int]) -> list[Strip]:
        """Draw rows of the content, as wide as the widget; those that are kept need not be drawn."""
        if self.text_selection is not None:
            self._kept, self._kept_before = {}, {}
            return super().draw_rows(rows)
        top = self.scroll_offset.y
        strips = []
        for y in rows:
            key = self.row_key(top + y)
            strip = self._kept.get(key) or self._kept_before.get(key) or super().draw_rows([y])[0]
            self._kept[key] = strip
            strips.append(strip)
        return strips

    def place(self, top: int, rows: int) -> None:
        """Be `rows` rows high, and make row `top` the first on screen."""
        (width, height), before = self.scrollable_content_region.size, self.virtual_size
        bar = self.show_vertical_scrollbar
        self._placing = True
        if before.width == width and (before.height > height, rows > height) == (bar, bar):
            # Assigned, it would lay out the screen; but here nothing depends on it except the scroll bar.
            self.set_reactive(ScrollView.virtual_size, Size(width, rows))
        else:
            self.virtual_size = Size(width, rows)
        self.scroll_target_y = self.scroll_y = top
        self._placing = False
        self._place_thumb()

    def _place_thumb(self) -> None:
        """Show in the scroll bar what is on screen, if there is one, and it would look otherwise."""
        height, rows = self.scrollable_content_region.height, self.virtual_size.height
        if not self.show_vertical_scrollbar or rows < 1:
            return
        bar, top = self.vertical_scrollbar, self.scroll_offset.y
        there = _thumb(round(bar.position), bar.window_size, bar.window_virtual_size)
        if _thumb(top, height, rows) != there:
            bar.window_virtual_size, bar.window_size, bar.position = rows, height, top

    def _arrange_scrollbars(self, region: Region) -> Iterable[tuple[Widget, Region]]:
        """A layout tells the scroll bar how many rows there are; here it is told the place, too."""
        yield from super()._arrange_scrollbars(region)
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = self.scroll_offset.y

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Draw what is on screen now; the scroll bar was seen to by `place`, if that was it."""
        if self._placing:
            if round(old_value) != round(new_value):
                self.refresh(self.size.region)
        else:
            super().watch_scroll_y(old_value, new_value)

    # Not animated: on the way there would be rows whose height is not known yet.
    def action_scroll_up(self) -> None:
        """Scroll up by a row."""
        self.scroll_up(animate=False)

    def action_scroll_down(self) -> None:
        """Scroll down by a row."""
        self.scroll_down(animate=False)

    def action_page_up(self) -> None:
        """Scroll up by a page."""
        self.scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        """Scroll down by a page."""
        self.scroll_page_down(animate=False)

    def action_scroll_home(self) -> None:
        """Scroll to the first row."""
        self.scroll_home(animate=False)


def _thumb(top: int, height: int, rows: int) -> tuple[int, int]:
    """Return place and length of a scroll bar's thumb, in eighths of a cell."""
    return 8 * height * top // max(1, rows), 8 * height * height // max(1, rows)


def _padded(strip: Strip, blank: Strip, left: int) -> Strip:
    """The strip, `left` cells into the blank one."""
    if strip.cell_length == blank.cell_length:
        return strip
    return Strip([*blank.crop(0, left), *strip, *blank.crop(left + strip.cell_length)], blank.cell_length)
