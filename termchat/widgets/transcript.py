"""The messages of the open conversation. Only those near the screen are widgets; the others are text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.layout import DockArrangeResult
from textual.widget import Widget

from termchat.widgets.message import Message, Role

_SCREENS = 2  # of older messages are made into widgets at a time
_MOST_WIDGETS = 60  # above this, widgets far above the screen are removed again


@dataclass(slots=True)
class Entry:
    """A message as plain data (see `Message`)."""

    id: str
    role: Role
    text: str = ""
    thinking: str = ""
    label: str = ""
    note: str = ""
    complete: bool = True

    def rows(self, width: int) -> int:
        """About how many rows it takes."""
        return 4 + self.text.count("\n") + len(self.text) // max(1, width)


class Transcript(VerticalScroll):
    """Shows entries, newest at the bottom, and stays there until the user scrolls up.

    `append` may be called per token; `flush` from a timer shows what has come.
    """

    DEFAULT_CSS = """
    Transcript { height: 1fr; scrollbar-gutter: stable; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: dict[str, Entry] = {}
        self._messages: dict[str, Message] = {}  # of the last entries, in order
        self._live: set[str] = set()
        self._tops: dict[Widget, int] = {}

    async def show(self, entries: Iterable[Entry]) -> None:
        """Show these entries in place of what was there, from the newest."""
        with self.app.batch_update():
            await self.remove_children()
            self._entries = {entry.id: entry for entry in entries}
            self._messages = {}
            self._tops = {}
            self._live = {entry.id for entry in self._entries.values() if not entry.complete}
            await self._extend(_SCREENS)
        self.anchor()

    def add(self, entry: Entry) -> None:
        """Show one more entry at the bottom."""
        self._entries[entry.id] = entry
        if not entry.complete:
            self._live.add(entry.id)
        message = self._messages[entry.id] = _message(entry)
        self.mount(message)
        if self.is_vertical_scroll_end:
            self._trim()

    def append(self, id: str, text: str = "", thinking: str = "") -> None:
        """Store what has come for an entry; `flush` shows it."""
        entry = self._entries[id]
        entry.text += text
        entry.thinking += thinking
        if id in self._messages:
            self._messages[id].append(text, thinking)

    def finish(self, id: str, note: str = "") -> None:
        """Mark an entry as complete."""
        entry = self._entries[id]
        entry.complete, entry.note = True, note
        self._live.discard(id)
        if id in self._messages:
            self._messages[id].finish(note)

    def flush(self) -> None:
        """Render what was stored since the last time."""
        for id in self._live & self._messages.keys():
            self._messages[id].flush()

    def message(self, id: str) -> Message | None:
        """The widget of an entry, if it has one now."""
        return self._messages.get(id)

    async def reveal(self, id: str) -> Message:
        """Scroll to an entry; KeyError if there is none."""
        if id not in self._entries:
            raise KeyError(id)
        if id not in self._messages:
            await self._extend(None)
        message = self._messages[id]
        self.call_after_refresh(self.scroll_to_widget, message, animate=False, top=True)
        return message

    def action_scroll_home(self) -> None:
        """Go to the very first message."""
        self.run_worker(self._go_home(), exclusive=True, group="extend")

    async def _go_home(self) -> None:
        await self._extend(None)
        self.scroll_home(animate=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Make widgets of older messages before the user gets to them."""
        super().watch_scroll_y(old_value, new_value)
        if (
            new_value < old_value
            and new_value < self.size.height
            and len(self._messages) < len(self._entries)
        ):
            self.run_worker(self._extend(_SCREENS), exclusive=True, group="extend")

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Arrange the messages; whatever changes above the screen, what is on it stays where it is."""
        result = super().arrange(size, optimal)
        tops = {placement.widget: placement.region.y for placement in result.placements}
        if not (self.is_anchored and self.is_vertical_scroll_end):
            seen = [widget for widget, top in self._tops.items() if top <= self.scroll_y and widget in tops]
            if seen and (moved := tops[seen[-1]] - self._tops[seen[-1]]):
                self.set_scroll(None, self.scroll_y + moved)
                self.set_reactive(Widget.scroll_target_y, self.scroll_y)
        self._tops = tops
        return result

    async def _extend(self, screens: int | None) -> None:
        """Make widgets of so many screens of older messages, or of all."""
        ids = list(self._entries)
        start = stop = len(ids) - len(self._messages)
        rows = 0
        height = self.size.height or self.app.size.height
        width = self.size.width or self.app.size.width
        while start > 0 and (screens is None or rows < screens * height):
            start -= 1
            rows += self._entries[ids[start]].rows(width)
        if start == stop:
            return
        older = {id: _message(self._entries[id]) for id in ids[start:stop]}
        first = next(iter(self._messages.values()), None)
        self._messages = older | self._messages
        await self.stop_animation("scroll_y")  # it would scroll to where the old rows were
        await self.mount(*older.values(), before=first)

    def _trim(self) -> None:
        """Remove widgets far above the screen, if there are many."""
        if len(self._messages) <= _MOST_WIDGETS:
            return
        far = self.scroll_y - _SCREENS * self.size.height
        old = [id for id, message in self._messages.items() if message.virtual_region.bottom < far]
        with self.app.batch_update():
            for id in old:
                self._messages.pop(id).remove()


def _message(entry: Entry) -> Message:
    return Message(
        entry.role,
        entry.text,
        thinking=entry.thinking,
        label=entry.label,
        note=entry.note,
        complete=entry.complete,
    )
