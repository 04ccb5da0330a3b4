"""The list of conversations: sign, title, speed. Only the rows on screen are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.binding import Binding
from textual.content import Content
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...cells import fit
from ...units import rate
from ..conversations.conversation import Conversation
from ..glyphs import STYLES, UNICODE, Glyphs
from .kept_rows import KeptRows
from .lines import row_of


class ConversationList(KeptRows, ScrollView, can_focus=True):
    """Conversations, one a row. `shown` is the one on screen, `cursor` the row the keys are at."""

    DEFAULT_CSS = """
    ConversationList { width: 26; background: $surface; scrollbar-size-vertical: 1; padding: 0; }
    """
    BINDINGS = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home", "move(-100000)", show=False),
        Binding("end", "move(100000)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Chosen(Message):
        """A conversation was chosen with Enter or the mouse."""

        def __init__(self, conversation: Conversation) -> None:
            super().__init__()
            self.conversation = conversation

    cursor: reactive[int] = reactive(0)

    def __init__(self, glyphs: Glyphs = UNICODE, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.auto_links = False
        self._glyphs = glyphs
        self._conversations: Sequence[Conversation] = ()
        self._shown: Conversation | None = None
        self._speeds: Mapping[Conversation, float] = {}
        self._rows: list[tuple[tuple[str, str, str, str, str], bool]] = []

    def update(
        self,
        conversations: Sequence[Conversation],
        shown: Conversation | None,
        speeds: Mapping[Conversation, float],
    ) -> None:
        """Show these. speeds: tokens a second of those that stream."""
        moved = shown is not self._shown
        self._conversations, self._shown, self._speeds = list(conversations), shown, speeds
        if moved and shown in self._conversations:
            self.cursor = self._conversations.index(shown)
        self.cursor = max(0, min(self.cursor, len(self._conversations) - 1))
        self.virtual_size = Size(self.size.width, len(self._conversations))
        rows = [(self._parts(conversation), conversation is shown) for conversation in self._conversations]
        before, self._rows = self._rows, rows
        if len(rows) != len(before):
            self.refresh()
            return
        top = self.scroll_offset.y
        changed = [index for index, row in enumerate(rows) if row != before[index]]
        if changed:
            self.refresh(*(Region(0, index - top, self.size.width, 1) for index in changed))

    def watch_cursor(self, cursor: int) -> None:
        """Keep it in sight."""
        if self.is_attached:
            self.scroll_to_region(Region(0, cursor, 1, 1), animate=False, force=True)
            self.refresh()

    def on_focus(self) -> None:
        """Show the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.refresh()

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self.cursor = max(0, min(self.cursor + rows, len(self._conversations) - 1))

    def action_choose(self) -> None:
        """Choose the row of the cursor."""
        if self.cursor < len(self._conversations):
            self.post_message(self.Chosen(self._conversations[self.cursor]))

    def on_click(self, event: Click) -> None:
        """Choose the row under the mouse."""
        row = event.y + self.scroll_offset.y
        if row < len(self._conversations):
            self.cursor = row
            self.action_choose()

    def render_line(self, y: int) -> Strip:
        """One row."""
        width = self.size.width
        index = y + self.scroll_offset.y
        if index >= len(self._rows):
            return Strip.blank(width, self.part_style())
        parts, shown = self._rows[index]
        row = self._row(parts, width, shown)
        if shown:
            row = row.stylize_before("$foreground on $primary 22%")
        if self.has_focus and index == self.cursor:
            row = row.stylize("reverse")
        return row_of(row, self.visual_style)

    def _parts(self, conversation: Conversation) -> tuple[str, str, str, str, str]:
        """What a row shows: sign, title, speed or length of the queue; and the styles of sign and title."""
        state = conversation.state
        speed = self._speeds.get(conversation) if conversation.live else None
        end = rate(speed) if speed else f"+{len(conversation.queue)}" if conversation.queue else ""
        sign_style = "$primary" if conversation.unread and state == "idle" else STYLES[state]
        style = "bold" if conversation.unread else "" if conversation.id is not None else "italic $chat-muted"
        title = " ".join(conversation.title.splitlines())
        return self._glyphs.of(state, conversation.unread), title, end, sign_style, style

    def _row(self, parts: tuple[str, str, str, str, str], width: int, shown: bool) -> Content:
        sign, title, end, sign_style, style = parts
        room = max(0, width - 4 - len(end) - 1)
        return Content.assemble(
            (self._glyphs.here if shown else " ", "$primary"),
            (f"{sign} ", sign_style),
            (fit(title, room), style),
            (f"{end:>{len(end) + 1}} ", "$chat-muted"),
        )
