"""A box for text that offers to complete what is being typed: Tab takes it, Up and Down choose."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from textual import events
from textual.message import Message

from ..offer import Completer, Offer, Unfinished
from .text_box import TextBox

LISTING_SECONDS = 1.0
"""So long Tab waits for a folder to be listed."""


class Completing(TextBox):
    """completer: what looks at the text; without one nothing is offered.

    What is offered depends on the text, the cursor and the files alone, however fast keys come: Tab waits for
    a folder to be listed, and Enter takes only what Up and Down have chosen, as it may be carried out then.
    """

    completer: Completer | None = None
    offer = Offer()
    _refused: tuple[int, int] | None = None  # row and column of what nothing is to be offered for

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._listings: dict[str, asyncio.Task[None]] = {}  # by folder, one each: some never answer

    class Offered(Message):
        """What is offered is another."""

    async def on_key(self, event: events.Key) -> None:
        """Tab; other keys are the text area's."""
        if event.key == "tab" and await self._complete():
            event.stop()
            event.prevent_default()

    async def _complete(self) -> bool:
        """Take the chosen one of what is offered, or the first; whether there is anything to complete."""
        unfinished = self.offer.unfinished
        if unfinished is not None and (listing := self._listings.get(unfinished.above)) is not None:
            await asyncio.wait([listing], timeout=LISTING_SECONDS)
        if not self.offer.items:
            return self.offer.unfinished is not None
        self.take(self.offer.at or 0)
        return True

    def take(self, index: int) -> bool:
        """Put what is offered in the place of what is typed; whether that is a whole line to carry out."""
        unfinished, item = self.offer.unfinished, self.offer.items[index]
        assert unfinished is not None, "something is offered"
        row = self.offer.row  # the cursor may be in another one by now
        start, end = (row, unfinished.start), (row, unfinished.end)
        self.replace(item.text, start, end, maintain_selection_offset=False)
        return unfinished.kind != "file"

    def refuse(self) -> None:
        """Offer nothing more for what is being typed."""
        row, unfinished = self.offer.row, self.offer.unfinished
        self.withdraw()
        if unfinished is not None:
            self._refused = row, unfinished.start

    def withdraw(self) -> None:
        """Offer nothing, until something is typed."""
        self._refused = None
        if self.completer is not None:
            self.completer.forget()
        self._offer(Offer())

    def look(self) -> None:
        """See what can be completed where the cursor is."""
        if self.completer is None:
            return
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        unfinished = self.completer.unfinished(before, first=row == 0) if self.selection.is_empty else None
        if unfinished is None:
            self.withdraw()
            return
        if (row, unfinished.start) == self._refused:
            return
        self._refused = None
        items = self.completer.completions(unfinished)
        if items is None and unfinished.above not in self._listings:
            listing = asyncio.create_task(self._list(self.completer, unfinished))
            self._listings[unfinished.above] = listing
        self._offer(Offer(unfinished, row, items or ()))

    async def _list(self, completer: Completer, unfinished: Unfinished) -> None:
        try:
            await completer.list_folder(unfinished)
        finally:
            del self._listings[unfinished.above]
        if self.offer.unfinished is not None and self.offer.unfinished.above == unfinished.above:
            self.look()

    def _offer(self, offer: Offer) -> None:
        if offer != self.offer:
            self.offer = offer
            self.post_message(self.Offered())

    def choose(self, step: int) -> bool:
        """Go to another of what is offered; whether anything is."""
        count, at = len(self.offer.items), self.offer.at
        if not count:
            return False
        first = 0 if step > 0 else count - 1
        self._offer(replace(self.offer, at=first if at is None else (at + step) % count))
        return True

    def on_blur(self) -> None:
        """Offer nothing where nobody types."""
        self.withdraw()

    def on_text_area_selection_changed(self) -> None:
        """Offer only what belongs where the cursor is."""
        unfinished = self.offer.unfinished
        if unfinished is not None and self.cursor_location != (self.offer.row, unfinished.end):
            self.look()
