"""The open conversation: one widget that draws the rows of all its messages.

A widget for each message would take 0.3 s to mount 200 turns and as much to switch the theme, before anything
is rendered. Here only the messages near the screen are laid out; of the others the height is an estimate, put
right before they come on screen, and what is on screen stays in place when it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable
from itertools import accumulate

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.geometry import Region
from textual.reactive import reactive
from textual.selection import Selection
from textual.strip import Strip

from ...render import Palette, Row
from ...render.strips import text_styles
from ...themes import contrast
from ..terminal.ascii import AsWritten
from .kept_rows import RowView
from .message_rows import GLYPHS, MessageRows, Role
from .mouse_selection import MouseSelection

_MARGIN = 2  # columns left of the text, where the cursor is
_SPACE = 1  # columns right of the text, before the scroll bar
_GAP = 1  # rows after a message
_READABLE = 2.7  # contrast of selected text; with less it is drawn in the colour of plain text


class Transcript(AsWritten, MouseSelection, RowView, can_focus=True):
    """Messages, the newest at the bottom; it stays there until the user scrolls up or selects.

    Appending to a message only stores; call `flush` from a timer (every 50 to 100 ms) to show what has come.
    cursor: number of the message that keys act on, None without one. ascii: draw with plain characters.
    """

    COMPONENT_CLASSES = {
        "transcript--user",
        "transcript--assistant",
        "transcript--system",
        "transcript--cursor",
    }
    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-gutter: stable;
        color: $foreground;
        & > .transcript--user { background: $surface; color: $foreground; }
        & > .transcript--assistant { color: $foreground; }
        & > .transcript--system { color: $chat-muted; }
        & > .transcript--cursor { color: $accent; }
    }
    """

    cursor: reactive[int | None] = reactive(None)

    def __init__(self, *, ascii: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._ascii = ascii
        self._messages: list[MessageRows] = []
        self._width = 0  # of the text, as of the last layout
        self._heights: list[int] = []
        self._tops: list[int] = [0]  # the row each message begins at, and where the last one ends
        self._following = True
        self._held = False  # by a selection, where it would follow
        self._palettes: dict[str, Palette] = {}

    @property
    def messages(self) -> tuple[MessageRows, ...]:
        """The messages from top to bottom."""
        return tuple(self._messages)

    @property
    def current(self) -> MessageRows | None:
        """The message with the cursor."""
        return None if self.cursor is None else self._messages[self.cursor]

    @property
    def following(self) -> bool:
        """Whether the end is on screen, and stays there."""
        return self._following and not self._held

    def show(self, messages: Iterable[MessageRows]) -> None:
        """Show these messages in place of what was there, from the newest."""
        self.cursor = None
        self._messages = list(messages)
        for number, message in enumerate(self._messages):
            message.place(number)
        self._heights, self._tops = [], [0]
        self._following, self._held = True, False
        self._settle(0, 0)
        self.refresh()

    def add(self, message: MessageRows) -> None:
        """Show one more message at the bottom."""
        message.place(len(self._messages))
        self._messages.append(message)
        self.flush()

    def follow(self) -> None:
        """Go to the bottom and stay there."""
        self._following, self._held = True, False
        self.flush()

    def reveal(self, number: int) -> None:
        """Put the cursor on a message and its first row at the top of the screen."""
        self.cursor = number
        self._following = False
        self._settle(number, 0)

    def move_cursor(self, step: int) -> None:
        """Move the cursor by so many messages, from the last one if there was none, and scroll to it."""
        if not self._messages:
            return
        number = len(self._messages) if self.cursor is None else self.cursor
        self.cursor = max(0, min(number + step, len(self._messages) - 1))
        rows = self._tops[self.cursor : self.cursor + 2]  # fewer before the first layout
        first, stop = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        if len(rows) < 2 or rows[0] < first or rows[1] > stop:
            self.reveal(self.cursor)

    def flush(self) -> None:
        """Render what has changed in the messages since the last time."""
        self._held = self._held and self.selecting
        number = min(bisect_right(self._tops, self.scroll_offset.y), len(self._messages)) - 1
        self._settle(max(0, number), self.scroll_offset.y - self._tops[max(0, number)])

    def _settle(self, pinned: int, offset: int) -> None:
        """Lay out the messages near the screen.

        What is on screen stays there: row `offset` of message `pinned` at the top, or the end if following.
        """
        region = self.scrollable_content_region
        width, height = region.width - _MARGIN - _SPACE, region.height
        if width < 1 or height < 1 or self._placing:
            return
        share = None  # how far into the pinned message, if its rows are going to be others
        if width != self._width:
            share = offset / self._heights[pinned] if pinned < len(self._heights) else 0
            self._width, self._heights = width, []
        self._heights += [message.rows(width) + _GAP for message in self._messages[len(self._heights) :]]
        settled: set[int] = set()
        changes: list[tuple[int, int]] = []  # numbers of messages, and their first row that is not as before
        end = self._tops[-1]
        while True:
            self._tops = [0, *accumulate(self._heights)]
            if self.following or not self._messages:
                top = self._tops[-1] - height
            else:
                top = self._tops[pinned] + (offset if share is None else round(share * self._heights[pinned]))
            top = max(0, min(top, self._tops[-1] - height))
            first, last = (
                bisect_right(self._tops, top - height) - 1,
                bisect_left(self._tops, top + 2 * height),
            )
            near = set(range(max(0, first), min(last, len(self._messages)))) - settled
            if not near:
                break
            settled |= near
            for number in near:
                message = self._messages[number]
                row = message.layout(width)
                if row < message.height or message.height + _GAP != self._heights[number]:
                    changes.append((number, row))
                    self._heights[number] = message.height + _GAP
        self.place(top, self._tops[-1])
        for number, row in changes:
            y = max(0, self._tops[number] + row - top)
            below = min(height, max(end, self._tops[-1]) - top)  # what was or is text
            if y < below:
                self.refresh(Region(0, y, region.width, below - y))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Lay out what comes near the screen; at the bottom, follow."""
        super().watch_scroll_y(old_value, new_value)
        if not self._placing and round(old_value) != round(new_value):
            self._following = new_value >= self.max_scroll_y
            self.flush()

    def watch_cursor(self) -> None:
        """Draw the cursor where it is now."""
        self.refresh()

    def on_resize(self) -> None:
        """Wrap to the new width."""
        self.flush()

    def notify_style_update(self) -> None:
        """Draw in the colours of the new theme; rows that are not on screen follow when they are."""
        super().notify_style_update()
        self._palettes.clear()

    def fold_thinking(self, number: int, folded: bool | None = None) -> None:
        """Hide or show the thinking of a message (None changes it) and keep the place."""
        self._messages[number].fold_thinking(folded)
        self._following = False
        self.flush()
        self._following = self.scroll_offset.y >= self.max_scroll_y

    def stand_still(self) -> None:
        """What is being selected does not move away under the pointer."""
        self._held = True

    def on_click(self, event: events.Click) -> None:
        """Fold or unfold the thinking by a click on its line; more clicks select."""
        if self.take_clicked(event):
            return
        y = event.y - self.gutter.top + self.scroll_offset.y
        number = bisect_right(self._tops, y) - 1
        if number < len(self._messages) and self._messages[number].is_fold(y - self._tops[number]):
            self.fold_thinking(number)

    def row_key(self, y: int) -> Hashable:
        """What a row depends on."""
        if (found := self._row(y)) is None:
            return ()
        number, before, row = found
        message = self._messages[number]
        return row, before, message.role, number == self.cursor, message.marks(row)

    def render_line(self, y: int) -> Strip:
        """Return a row of the screen, without padding."""
        width = self.scrollable_content_region.width
        found = self._row(y + self.scroll_offset.y)
        if found is None:
            return Strip.blank(width, self.part_style())
        number, before, row = found
        palette = self._palette(self._messages[number].role)
        cursor = "▌" if number == self.cursor else ""
        margin = [
            Segment(palette.signs(cursor).ljust(_MARGIN), palette.style("cursor")),
            Segment(palette.signs(before), palette.style("bar")),
        ]
        if before:
            palette = palette.under("thinking")
        strip = row.strip(palette, max(1, width - _MARGIN - len(before) - _SPACE))
        for start, end, style in self._messages[number].marks(row):
            if (cells := row.cells(start, end)) is not None:
                strip = _restyled(strip, cells, palette.mark(style))
        selection = self.text_selection
        if selection is not None and (cells := row.selected_cells(selection)) is not None:
            marked = [Segment(text, self._marked(own or Style())) for text, own, _ in strip.crop(*cells)]
            strip = Strip([*strip.crop(0, cells[0]), *marked, *strip.crop(cells[1])])
        return Strip([*margin, *strip]).extend_cell_length(width, self.part_style())

    def row_at(self, y: int) -> tuple[int, Row] | None:
        """Where in row `y` its content begins, and the row."""
        found = self._row(y) if y >= 0 else None
        return None if found is None else (self.gutter.left + _MARGIN + len(found[1]), found[2])

    def _row(self, y: int) -> tuple[int, str, Row] | None:
        """Return the number of the message in row `y`, what stands before the row, and the row."""
        number = bisect_right(self._tops, y) - 1
        if number >= len(self._heights) or y - self._tops[number] >= self._heights[number] - _GAP:
            return None
        return number, *self._messages[number].row(y - self._tops[number])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text as it was written, also of messages that are not on screen."""
        parts = [message.selected(selection) for message in self._messages]
        return "\n\n".join(part for part in parts if part), "\n"

    def _marked(self, own: Style) -> Style:
        """Return the style of selected text: its own, and what shows the selection."""
        mark = self.screen.get_component_rich_style("screen--selection")
        if mark.reverse:
            return own + Style(reverse=True)
        ink, ground = (colour and Color.from_rich_color(colour) for colour in (own.color, mark.bgcolor))
        if ink is not None and ground is not None and contrast(ink, ground) < _READABLE:
            own += Style(color=self.part_style().color)
        return own + Style(bgcolor=mark.bgcolor)

    def _palette(self, role: Role) -> Palette:
        if not self._palettes:
            styles = text_styles(self.app.theme_variables)
            styles["cursor"] = self.get_component_rich_style("transcript--cursor", partial=True)
            for name in GLYPHS:
                base = self.get_component_rich_style(f"transcript--{name}")
                self._palettes[name] = Palette(styles, base, ascii=self._ascii)
        return self._palettes[role]

    def action_scroll_end(self) -> None:
        """Scroll to the bottom and stay there."""
        self.follow()


def _restyled(strip: Strip, cells: tuple[int, int], style: Style) -> Strip:
    """The strip with a style on top from one cell to before another."""
    inside = [Segment(text, (own or Style()) + style) for text, own, _ in strip.crop(*cells)]
    return Strip([*strip.crop(0, cells[0]), *inside, *strip.crop(cells[1])])
