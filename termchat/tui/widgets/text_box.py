"""A box for text of several lines; Textual's, where undoing cannot end the program."""

from __future__ import annotations

from textual.widgets import TextArea


class TextBox(TextArea):
    """Undo and redo change the lines first and move the cursor afterwards. A scroll bar that comes or goes in
    between asks for the cursor's place, which may be in a line that is gone.
    """

    def _recompute_cursor_offset(self) -> None:
        row, column = self.selection.end
        if row < self.document.line_count and column <= len(self.document.get_line(row)):
            super()._recompute_cursor_offset()  # type: ignore[no-untyped-call]
