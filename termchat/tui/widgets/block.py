"""Text that is set often: drawn only when it has changed, laid out only when it has more or fewer lines."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class Block(Static):
    """Lines that do not wrap."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._shown: tuple[object, ...] = ()
        self._lines = 0

    def show_text(self, content: Content) -> None:
        """Show this; a layout of the screen costs more than all else, so it is asked for only if needed."""
        key = (content.plain, *content.spans)
        if key == self._shown:
            return
        lines = content.plain.count("\n") if content.plain else -1
        self.update(content, layout=lines != self._lines)
        self._shown, self._lines = key, lines
