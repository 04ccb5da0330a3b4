"""Widgets that mostly stay as they are, beside others that change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
else:
    _Base = object  # a style sheet's rules come down the first base that is a widget, so this must not be one


class Still(_Base):
    """Mixed into a widget, before it: its rows are kept from one `refresh` to the next.

    When anything changes on screen, Textual asks all widgets around it for all their rows. They are cached,
    but without filters and what a widget does first, so that asking costs more than the change.
    """

    _styles_kept: dict[str, Style] | None = None
    _still_rows: tuple[Region, list[Strip]] | None = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows of the widget."""
        if self._still_rows is None or self._still_rows[0] != crop:
            self._still_rows = crop, self.draw_lines(crop)
        return self._still_rows[1]

    def draw_lines(self, crop: Region) -> list[Strip]:
        """Draw the rows."""
        return super().render_lines(crop)

    def part_style(self, name: str = "") -> Style:
        """The style of the widget, or of a component class on top; Textual forgets them at each refresh."""
        if self._styles_kept is None:
            self._styles_kept = {"": self.rich_style}
        if name not in self._styles_kept:
            part = self.get_component_rich_style(name, partial=True)
            self._styles_kept[name] = self._styles_kept[""] + part
        return self._styles_kept[name]

    def forget(self, regions: Sequence[Region]) -> None:
        """Draw these regions anew; none: everything."""
        self._still_rows = None

    def refresh(self, *regions: Region, **what: Any) -> Self:
        """Draw again."""
        self.forget(regions)
        return super().refresh(*regions, **what)

    def notify_style_update(self) -> None:
        """Draw in the colours of the new theme."""
        super().notify_style_update()
        self._still_rows = self._styles_kept = None
