"""What the prompt offers to complete, above it: a few rows, one of which Enter takes."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.message import Message

from ..glyphs import UNICODE, Glyphs
from ..offer import Completion, Offer
from .figures import MUTED
from .lines import Lines

MOST = 8
"""Rows; of more items those around the chosen one are shown."""


class Suggestions(Lines):
    """The rows of an offer. It never gets lower while the same is offered, so that nothing above it jumps."""

    DEFAULT_CSS = "Suggestions { padding: 0 3; }"

    class Taken(Message):
        """A row was clicked. offer: what was shown; index: of its item."""

        def __init__(self, offer: Offer, index: int) -> None:
            super().__init__()
            self.offer = offer
            self.index = index

    def __init__(self, glyphs: Glyphs = UNICODE) -> None:
        super().__init__(grow=True)
        self._glyphs = glyphs
        self._offer = Offer()
        self._top = 0

    def show(self, offer: Offer, most: int) -> None:
        """Show what is offered, in at most so many rows."""
        before, self._offer = self._offer, offer
        rows = min(len(offer.items), MOST, max(most, 1))
        at = offer.at or 0
        self._top = max(0, min(self._top, at, len(offer.items) - rows), at - rows + 1)
        items = offer.items[self._top : self._top + rows]
        width = max((len(item.label) for item in items), default=0)
        lines = [self._line(item, offer.at == self._top + y, width) for y, item in enumerate(items)]
        if offer.unfinished is not None and before.unfinished is not None:
            lines += [Content("")] * (min(self.line_count, most) - len(lines))
        self.show_lines(lines)

    def _line(self, item: Completion, chosen: bool, width: int) -> Content:
        sign = self._glyphs.right if chosen else " "
        return Content.assemble(
            (f"{sign} ", "$primary"),
            (f"{item.label:<{width}}", "bold $primary" if chosen else ""),
            (f"   {item.detail}" if item.detail else "", MUTED),
        )

    def on_click(self, event: events.Click) -> None:
        """Take the row that is clicked."""
        if (index := self._top + event.y) < len(self._offer.items):
            self.post_message(self.Taken(self._offer, index))
