"""Rows of text that change and move: a change costs what the changed rows cost.

Textual works out background, borders, padding and effects of a widget again for every row that has changed,
and a row that has scrolled has changed; a new height lays out the whole screen. While text streams in at the
bottom that is most of what an interface does.
"""

from __future__ import annotations

from collections.abc import Hashable

from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from termchat.widgets.still import Still


class KeptRows(Still):
    """Mixed into a widget that draws in `render_line`: its finished rows are kept. It can have padding.

    Nothing is kept while something in it is selected.
    """

    _kept: dict[Hashable, Strip] | None = None
    _blank: Strip | None = None

    def row_key(self, y: int) -> Hashable:
        """What row `y` depends on besides theme and width, counted from the top of all rows."""
        return object()  # no two are equal: drawn anew with each refresh

    def draw_lines(self, crop: Region) -> list[Strip]:
        """Return rows of the widget, padding included."""
        padding, (width, height) = self.styles.padding, self.size
        filters, background = self.get_line_filters(), self.background_colors[1]
        if self._blank is None or self._blank.cell_length != crop.right:
            self._kept, self._blank = None, Strip.blank(crop.right, self.part_style())
        before = (self._kept if self.text_selection is None else None) or {}
        self._kept = {}
        top = self.scroll_offset.y
        strips = []
        for y in range(crop.y - padding.top, crop.bottom - padding.top):
            if 0 <= y < height and width > 0:
                key = self.row_key(top + y)
                strip = before.get(key)
                if strip is None:
                    strip = _padded(self.render_line(y), self._blank, padding.left)
                self._kept[key] = strip
            else:
                strip = self._blank
            for each in filters:
                strip = strip.apply_filter(each, background)
            strips.append(strip if crop.x == 0 else strip.crop(crop.x, crop.right))
        return strips

    def notify_style_update(self) -> None:
        """Draw in the colours of the new theme."""
        super().notify_style_update()
        self._kept = self._blank = None


class RowView(KeptRows, ScrollView):
    """A view of many rows."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._thumb = (0, 0)  # place and length in the scroll bar, in eighths of a cell
        self._placing = False

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
        if self.show_vertical_scrollbar and rows > 0:
            thumb = 8 * height * top // rows, 8 * height * height // rows
            if thumb != self._thumb:
                self._thumb = thumb
                scrollbar = self.vertical_scrollbar
                scrollbar.window_virtual_size, scrollbar.window_size, scrollbar.position = rows, height, top

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


def _padded(strip: Strip, blank: Strip, left: int) -> Strip:
    """The strip, `left` cells into the blank one."""
    if strip.cell_length == blank.cell_length:
        return strip
    return Strip([*blank.crop(0, left), *strip, *blank.crop(left + strip.cell_length)], blank.cell_length)
