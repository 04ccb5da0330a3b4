"""Text that is set often: drawn only when it has changed, laid out only when it has more or fewer lines."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class Block(Static):
    """Lines that do not wrap. grow: as high as it has lines; otherwise as the style sheet says."""

    def __init__(self, *, grow: bool = False, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._grow = grow
        self._drawn: tuple[object, ...] = ()

    def show_text(self, content: Content) -> None:
        """Show this; a layout of the screen costs more than all else, so it is asked for only if needed."""
        key = (content.plain, *content.spans)
        if key == self._drawn:
            return
        self._drawn = key
        self.update(content, layout=False)
        if self._grow:
            # Not height auto: its cached height can miss a change that comes before the first layout.
            self.styles.height = content.plain.count("\n") + 1 if content.plain else 0
