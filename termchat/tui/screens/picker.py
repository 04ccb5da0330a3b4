"""A list to choose from, narrowed down by typing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ...words import holds
from .dialogs import Dialog

PAUSE_SECONDS = 0.1
"""So long nothing is typed before the list follows."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something to choose. text: what is shown, literal; detail: below it; value: the answer.

    All are searched, the value if it is a text.
    """

    text: Content
    value: Any
    detail: Content | None = None

    def content(self) -> Content:
        """What the list shows."""
        return self.text if self.detail is None else Content("\n").join([self.text, self.detail])

    def searched(self) -> str:
        """What a query is looked for in."""
        more = f"\n{self.value}" if isinstance(self.value, str) else ""
        return f"{self.content().plain}{more}"


def matching(items: Sequence[Item], query: str) -> list[Item]:
    """The items that hold every word of the query."""
    return [item for item in items if holds(item.searched(), query)]


class Picker(Dialog[Any]):
    """Choose one of many.

    search: the items for what was typed. highlighted: called with the value the cursor is at (None: no item),
    for a preview. hint: the keys, below the list. aside: at the left, with the rest of the screen as it is.
    """

    DEFAULT_CSS = """
    Picker .dialog { width: 84; height: 26; }
    Picker .dialog OptionList { margin-top: 1; height: 1fr; max-height: 100%; scrollbar-size-vertical: 1; }
    Picker .dialog-title { margin-bottom: 0; }
    Picker.-aside { align: left middle; background: $background 0%; }
    Picker.-aside .dialog { width: 32; }
    """

    def __init__(
        self,
        title: str,
        search: Callable[[str], Awaitable[Sequence[Item]]],
        *,
        query: str = "",
        selected: Any = None,
        hint: str = "enter choose   esc close",
        highlighted: Callable[[Any], None] | None = None,
        aside: bool = False,
    ) -> None:
        super().__init__(title)
        self.set_class(aside, "-aside")
        self._search = search
        # Held here: a search may end when the screen is closed and has neither any more.
        self._input = Input(query, placeholder="type to search")
        self._list = OptionList()
        self._selected = selected
        self._hint = hint
        self._highlighted = highlighted
        self._items: Sequence[Item] = ()
        self._followed: str | None = None  # what was typed when the list was filled
        self._later: Timer | None = None

    def content(self) -> ComposeResult:
        """Input and list."""
        yield self._input
        yield self._list
        yield Static(self._hint, classes="dialog-hint", markup=False)

    async def on_mount(self) -> None:
        """Fill the list."""
        await self.refill(self._input.value)
        self._input.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list down when the typing pauses."""
        if self._later is not None:
            self._later.stop()
        self._later = self.set_timer(PAUSE_SECONDS, self._refill_now)

    def _refill_now(self) -> None:
        self._later = None
        self.run_worker(self.refill(self._input.value), exclusive=True, group="refill")

    async def refill(self, query: str) -> None:
        """Show what matches."""
        items = await self._search(query)
        if not self._list.is_attached or self._input.value != query:
            return  # closed, or typed on meanwhile
        self._items, self._followed = items, query
        options = self._list
        options.clear_options()
        options.add_options([Option(item.content()) for item in items])
        if items:
            values = [item.value for item in items]
            options.highlighted = values.index(self._selected) if self._selected in values else 0
        else:
            options.add_option(Option(Content("nothing found"), disabled=True))
            if self._highlighted is not None:
                self._highlighted(None)

    async def on_key(self, event: events.Key) -> None:
        """Move in the list while the input has the focus."""
        moves = {
            "up": "cursor_up",
            "down": "cursor_down",
            "pageup": "page_up",
            "pagedown": "page_down",
        }
        if event.key in moves:
            event.stop()
            event.prevent_default()
            if self._list.scrollable_content_region:  # else it has no rows to move by
                await self.app.run_action(moves[event.key], self._list)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Preview."""
        if self._highlighted is not None and event.option_index < len(self._items):
            self._highlighted(self._items[event.option_index].value)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Choose the item at the cursor, of those that match what is typed."""
        event.stop()
        if self._later is not None:
            self._later.stop()
            self._later = None
        if self._followed != event.value:  # the pause is not over, or a search is under way
            await self.refill(event.value)
        if self._followed == event.value:  # else there was more typing, or the list is closed
            self._choose(self._list.highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Choose the item clicked."""
        self._choose(event.option_index)

    def _choose(self, index: int | None) -> None:
        if index is not None and index < len(self._items):
            self.dismiss(self._items[index].value)
