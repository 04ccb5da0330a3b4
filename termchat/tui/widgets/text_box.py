"""A box for text of several lines; Textual's, with the keys of shells, and undoing cannot end the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from textual import events
from textual.binding import Binding
from textual.document._document import EditResult, Location, Selection
from textual.widgets import TextArea

from ...words import word_at


class TextBox(TextArea):
    """What is deleted by words or lines is kept, and `yank` puts the last of it back, as in shells.

    Undo and redo change the lines first and move the cursor afterwards. A scroll bar that comes or goes in
    between asks for the cursor's place, which may be in a line that is gone.
    """

    BINDINGS = [
        Binding(
            "alt+d,ctrl+delete,alt+delete", "delete_word_right", "delete the word to the right", show=False
        ),
        Binding("ctrl+y", "redo_or_yank", "redo, or put back what was deleted", show=False),
    ]
    _killed = ""
    _kills = False

    def action_redo_or_yank(self) -> None:
        """Make the change again that was just undone; if there is none, put back what was deleted."""
        if self.history._redo_stack:
            self.redo()
        elif self._killed and not self.read_only:
            self.yank(self._killed)

    def yank(self, text: str) -> None:
        """Put a text that was deleted where the cursor is."""
        self.replace(text, *self.selection, maintain_selection_offset=False)

    def action_delete_word_left(self) -> None:
        """Delete to the beginning of the word."""
        with self._killing():
            super().action_delete_word_left()

    def action_delete_word_right(self) -> None:
        """Delete to the end of the word."""
        with self._killing():
            super().action_delete_word_right()

    def action_delete_to_start_of_line(self) -> None:
        """Delete to the left."""
        with self._killing():
            super().action_delete_to_start_of_line()

    def action_delete_to_end_of_line(self) -> None:
        """Delete to the right."""
        with self._killing():
            super().action_delete_to_end_of_line()

    @contextmanager
    def _killing(self) -> Iterator[None]:
        self._kills = True
        try:
            yield
        finally:
            self._kills = False

    def _delete_via_keyboard(self, start: Location, end: Location) -> EditResult | None:
        result = super()._delete_via_keyboard(start, end)
        if self._kills and result is not None and result.replaced_text:
            self._killed = result.replaced_text
        return result

    def on_click(self, event: events.Click) -> None:
        """Two clicks select a word, three the line."""
        if event.chain < 2:
            return
        row, column = self.get_target_document_location(event)
        line = self.document.get_line(row)
        start, end = word_at(line, column) if event.chain == 2 else (0, len(line))
        self.selection = Selection((row, start), (row, end))

    def _recompute_cursor_offset(self) -> None:
        row, column = self.selection.end
        if row < self.document.line_count and column <= len(self.document.get_line(row)):
            super()._recompute_cursor_offset()  # type: ignore[no-untyped-call]
