"""Sentences for the user, above the prompt: they cover nothing, and go by themselves."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from ..glyphs import UNICODE, Glyphs
from .kept_rows import Kept

MOST = 3
"""Shown at once; of more, the newest."""
SECONDS, ERROR_SECONDS = 4.0, 8.0
READING = 20
"""Characters for which a sentence stays a second longer."""


class Notices(Kept, Static):
    """The newest sentences, one below the other."""

    DEFAULT_CSS = """
    Notices { height: auto; padding: 0 3; display: none; color: $foreground; }
    """

    def __init__(self, glyphs: Glyphs = UNICODE) -> None:
        super().__init__("", markup=False)
        self._glyphs = glyphs
        self._told: list[tuple[str, bool]] = []
        self._lasting = ""

    def tell(self, text: str, *, error: bool = False) -> None:
        """Show a sentence; one that is there already becomes the newest."""
        notice = text, error
        self._told = [*(other for other in self._told if other != notice), notice][-MOST:]
        self._draw()
        self._go_later(notice, (ERROR_SECONDS if error else SECONDS) + len(text) / READING)

    def keep(self, text: str) -> None:
        """Show a sentence below all others until it is replaced; "" is none."""
        if text != self._lasting:
            self._lasting = text
            self._draw()

    def withdraw(self, text: str) -> None:
        """Show a sentence no more."""
        self._told = [notice for notice in self._told if notice[0] != text]
        self._draw()

    def clear(self) -> None:
        """Show none."""
        self._told = []
        self._draw()

    def on_click(self) -> None:
        """They are read."""
        self.clear()

    def _go_later(self, notice: tuple[str, bool], seconds: float) -> None:
        self.set_timer(seconds, lambda: self._go(notice))

    def _go(self, notice: tuple[str, bool]) -> None:
        if self.app.screen is not self.screen:  # below another one nobody has seen it
            self._go_later(notice, SECONDS)
        elif notice in self._told:
            self._told.remove(notice)
            self._draw()

    def _draw(self) -> None:
        shown = [*self._told, *([(self._lasting, True)] if self._lasting else [])]
        self.display = bool(shown)
        self.update(Content("\n").join(self._line(*notice) for notice in shown))

    def _line(self, text: str, error: bool) -> Content:
        sign, style = (self._glyphs.states["error"], "$error") if error else (self._glyphs.right, "$primary")
        return Content.assemble((f"{sign} ", style), (text, "$error" if error else ""))
