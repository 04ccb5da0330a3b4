"""Text that is selected with the mouse: from the character where the button went down to the one where it is.

Textual selects by widgets: a pointer on a blank row takes all that follows, one beside the conversation takes
the panels there, too, and a double click takes everything. Here a selection is one of the text it began in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from textual import events
from textual.geometry import Offset
from textual.scroll_view import ScrollView
from textual.selection import Selection

from ...render import Row
from ...words import word_at

if TYPE_CHECKING:
    from textual.timer import Timer

    _Base = ScrollView
else:
    _Base = object

SCROLL_SECONDS = 0.05
MOST_ROWS = 5  # that are scrolled at once, the farther the pointer is outside the faster
_LEFT = 1


class Spot(NamedTuple):
    """A place in the text, in the coordinates of selections: before and after the character that is there.

    Where there is none both are the same.
    """

    before: Offset
    after: Offset


class MouseSelection(_Base):
    """Mixed into a view of rows, before it."""

    ALLOW_SELECT = False  # by Textual
    _began: Spot | None = None
    _pointer = Offset(0, 0)
    _scrolling: Timer | None = None

    def stand_still(self) -> None:
        """Stay where it is as long as it is `selecting`."""
        raise NotImplementedError

    @property
    def selecting(self) -> bool:
        """Whether something is selected, or the button is down."""
        return self._began is not None or self.text_selection is not None

    def row_at(self, y: int) -> tuple[int, Row] | None:
        """Row `y` of all rows, with the cell where its content begins; None: there is none."""
        raise NotImplementedError

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin."""
        if event.button == _LEFT and (spot := self._spot(event.offset)) is not None:
            self._began = spot
            self.stand_still()
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Select up to the pointer; outside, scroll there."""
        if self._began is None:
            return
        if event.button != _LEFT:  # it was let go where nobody could tell
            self._stop()
            return
        self._pointer = event.offset
        self._select_to_pointer()
        if not self._outside():
            self._stop_scrolling()
        elif self._scrolling is None:
            self._scrolling = self.set_interval(SCROLL_SECONDS, self._scroll_on)

    def on_mouse_up(self) -> None:
        """That was it."""
        self._stop()

    def on_mouse_release(self) -> None:
        """Another has the mouse."""
        self._stop()

    def take_clicked(self, event: events.Click) -> bool:
        """Select the word of a double click, the paragraph of a triple one; whether the click selects."""
        row = self._row_under(event.offset)
        if event.chain > 1 and row is not None:
            begin, line = self._line(row)
            start, end = self._word(begin, line, event.offset) if event.chain == 2 else (0, begin + len(line))
            self._show(Offset(start, row.line), Offset(end, row.line))
        return self.text_selection is not None

    def _row_under(self, pointer: Offset) -> Row | None:
        found = self.row_at(pointer.y - self.gutter.top + self.scroll_offset.y)
        return found[1] if found is not None and found[1].line >= 0 else None

    def _word(self, begin: int, line: str, pointer: Offset) -> tuple[int, int]:
        """From where to where the word under the pointer goes, also if it is wrapped."""
        spot = self._spot(pointer)
        start, end = word_at(line, spot.before.x - begin if spot is not None else 0)
        return begin + start, begin + end

    def _line(self, row: Row) -> tuple[int, str]:
        """The logical line of a row as far as it is near the screen: where that begins, and its text."""
        top = self.scroll_offset.y
        near = (self.row_at(top + y) for y in range(-self.size.height, 2 * self.size.height))
        rows = [each for _, each in filter(None, near) if each.line == row.line]
        begin = rows[0].offset
        line = ""
        for each in rows:  # blanks that a row ended in are not in it
            at = each.offset - begin
            line = line[:at].ljust(at) + each.content
        return begin, line

    def _spot(self, pointer: Offset) -> Spot | None:
        """The place under the pointer; on a row without text the one before the text below it."""
        x, height = pointer.x, self.scrollable_content_region.height
        y = max(0, min(pointer.y - self.gutter.top, height - 1)) + self.scroll_offset.y
        if (found := self.row_at(y)) is not None and found[1].line >= 0:
            left, row = found
            start, end = row.characters_at(x - left)
            return Spot(Offset(start, row.line), Offset(end, row.line))
        if (below := self._text_in(range(y + 1, y + 2 * height))) is not None:
            place = Offset(below.offset, below.line)
            return Spot(place, place)
        if (above := self._text_in(range(y - 1, y - 2 * height, -1))) is not None:
            place = Offset(above.offset + len(above.content), above.line)
            return Spot(place, place)
        return None

    def _text_in(self, rows: Iterable[int]) -> Row | None:
        """The first of these rows that has text."""
        found = filter(None, map(self.row_at, rows))
        return next((row for _, row in found if row.line >= 0), None)

    def _select_to_pointer(self) -> None:
        if self._began is not None and (spot := self._spot(self._pointer)) is not None:
            first, last = sorted((self._began, spot), key=lambda each: each.before.transpose)
            self._show(first.before, last.after)

    def _show(self, start: Offset, end: Offset) -> None:
        if start.transpose < end.transpose:
            self.screen.selections = {self: Selection(start, end)}
        else:
            self.screen.clear_selection()

    def _outside(self) -> int:
        """How many rows the pointer is below what is shown; negative: above it."""
        y, height = self._pointer.y - self.gutter.top, self.scrollable_content_region.height
        return min(y, 0) if y < height else y - height + 1

    def _scroll_on(self) -> None:
        rows = max(-MOST_ROWS, min(self._outside(), MOST_ROWS))
        self.scroll_relative(y=rows, animate=False)
        self._select_to_pointer()

    def _stop(self) -> None:
        self._began = None
        self._stop_scrolling()
        if self.app.mouse_captured is self:
            self.release_mouse()

    def _stop_scrolling(self) -> None:
        if self._scrolling is not None:
            self._scrolling.stop()
            self._scrolling = None
