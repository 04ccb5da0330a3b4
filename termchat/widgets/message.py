"""One message of a conversation: a single widget that draws its rows itself."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from termchat.render import Document, Palette, Row, sanitize
from termchat.render.styles import text_styles

Role = Literal["user", "assistant", "system", "error"]

_GLYPHS = {"user": "❯", "assistant": "◆", "system": "○", "error": "✗"}
_AS_TYPED = ("user", "system", "error")
_LIVE_THINKING_ROWS = 6  # of the thinking that goes on, so much is shown
_BAR = "│ "  # before the thinking
_BODY_LINE = 1 << 32  # logical lines of the body are numbered from here on, those of the thinking from 0


@lru_cache(maxsize=4)
def _styles(variables: tuple[tuple[str, str], ...]) -> dict[str, Style]:
    return text_styles(dict(variables))


class Message(Widget):
    """A message; its text may grow.

    `append` only stores. The owner calls `flush` from a timer (every 50 to 100 ms); it renders what has come
    since and nothing else. label: who speaks. note: the line below, such as the speed. Model text can't style
    or move anything: control characters are replaced, markup is literal.
    """

    DEFAULT_CSS = """
    Message { width: 1fr; height: auto; padding: 0 1; margin: 0 0 1 0; color: $foreground; }
    Message.-user { background: $surface; }
    Message.-error { color: $error; }
    """

    def __init__(
        self,
        role: Role,
        text: str = "",
        *,
        thinking: str = "",
        label: str = "",
        note: str = "",
        complete: bool = True,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=f"-{role}")
        self.role = role
        self._label = _one_line(label or role)
        self._note = _one_line(note)
        self._complete = complete
        self._thinking = Document()
        self._thinking_words = 0
        self._body = Document(markdown=role not in _AS_TYPED, first_line=_BODY_LINE)
        self._has_answer = False
        self._folded: bool | None = None  # None: open until the answer begins
        # What is shown, from the top: these rows, the thinking from a row on, the body, these rows.
        self._above: list[Row] = []
        self._thinking_top = 0
        self._below: list[Row] = []
        self._palettes: tuple[Palette, Palette] | None = None  # of the body and of the thinking
        self.append(text, thinking)
        if complete:
            self._body.finish()
            self._thinking.finish()

    @property
    def text(self) -> str:
        """The text, control characters replaced."""
        return self._body.source

    def code_blocks(self) -> list[str]:
        """The code of each code block, as written."""
        return self._body.code_blocks()

    def append(self, text: str = "", thinking: str = "") -> None:
        """Store what has come; `flush` shows it."""
        if text:
            self._body.append(text)
            self._has_answer = self._has_answer or not text.isspace()
        if thinking:
            self._thinking.append(thinking)
            self._thinking_words += thinking.count(" ") + thinking.count("\n") + (not self._thinking_words)

    def finish(self, note: str = "") -> None:
        """Show the message as complete: no text will follow."""
        self._complete = True
        self._body.finish()
        self._thinking.finish()
        self.set_note(note)

    def set_note(self, note: str) -> None:
        """Change the line below the message."""
        self._note = _one_line(note)
        self.flush()

    def fold_thinking(self, folded: bool | None = None) -> None:
        """Hide or show the thinking; None changes it."""
        self._folded = not self._is_folded if folded is None else folded
        self.flush()

    def flush(self) -> None:
        """Render what was stored since the last time, and redraw the rows that changed."""
        width = self.size.width
        if not width:
            return  # not shown yet: its first layout renders it
        height = self._height
        first = self._layout(width)
        if self._height != height:
            self.refresh(layout=True)
        elif first < height:
            self.refresh(Region(0, first + self.gutter.top, self.outer_size.width, height - first))

    @property
    def _is_folded(self) -> bool:
        return self._has_answer if self._folded is None else self._folded

    @property
    def _height(self) -> int:
        return len(self._above) + self._thinking_height + self._body.height + len(self._below)

    @property
    def _thinking_height(self) -> int:
        return self._thinking.height - self._thinking_top

    def _layout(self, width: int) -> int:
        """Bring the rows up to date; return the first that may have changed."""
        before = [row.text for row in self._above], self._thinking_height
        self._thinking.layout(width - len(_BAR))
        self._thinking_top = self._thinking.height
        self._above = [_plain(f"{_GLYPHS[self.role]} {self._label}", self.role)]
        if self._thinking_words:
            state = "thought" if self._has_answer or self._complete else "thinking"
            mark = "▸" if self._is_folded else "▾"
            self._above.append(_plain(f"{mark} {state}, about {self._thinking_words} words", "muted"))
            if not self._is_folded:
                goes_on = self._folded is None and not self._complete
                self._thinking_top = max(0, self._thinking.height - _LIVE_THINKING_ROWS) if goes_on else 0
        self._below = [_plain(self._note, "muted")] if self._note else []
        first = self._body.layout(width)
        same = before == ([row.text for row in self._above], self._thinking_height)
        return len(self._above) + self._thinking_height + first if same else 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the rows at `width`; this lays out."""
        self._layout(width)
        return self._height

    def render_line(self, y: int) -> Strip:
        """Return one row of the content."""
        width = self.size.width
        body, thinking = self._current_palettes()
        if y < len(self._above):
            return self._above[y].strip(body, width)
        y -= len(self._above)
        if y < self._thinking_height:
            row = self._thinking.row(y + self._thinking_top)
            bar = Strip([Segment(_BAR, body.style("bar"))])
            return bar if row is None else Strip.join([bar, self._content(row, thinking, width - len(_BAR))])
        y -= self._thinking_height
        if (row := self._body.row(y)) is not None:
            return self._content(row, body, width)
        y -= self._body.height
        return self._below[y].strip(body, width) if y < len(self._below) else Strip.blank(width, body.base)

    def _content(self, row: Row, palette: Palette, width: int) -> Strip:
        """Return a row that can be selected, the selected part marked."""
        strip = row.strip(palette, width)
        selection = self.text_selection
        span = selection.get_span(row.line) if selection is not None else None
        if span is None:
            return strip
        content = row.content
        start, end = (0, -1) if row.whole else span
        start = max(0, start - row.offset)
        end = len(content) if end == -1 else min(len(content), end - row.offset)
        if start >= end:
            return strip
        lead = cell_len(row.text[: len(row.text) - len(content)])
        cuts = [lead + cell_len(content[:start]), lead + cell_len(content[:end])]
        style = self.screen.get_component_rich_style("screen--selection")
        marked = [Segment(text, (own or Style()) + style) for text, own, _ in strip.crop(*cuts)]
        return Strip([*strip.crop(0, cuts[0]), *marked, *strip.crop(cuts[1])])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text as it was written; without the thinking if everything is selected."""
        if selection.start is None and selection.end is None:
            return self.text, "\n"
        parts = [document.selected(selection) for document in (self._thinking, self._body)]
        return "\n".join(part for part in parts if part), "\n"

    def notify_style_update(self) -> None:
        """Draw in the colours of the new theme; rows that are not on screen follow when they are."""
        super().notify_style_update()
        self._palettes = None

    def on_click(self, event: events.Click) -> None:
        """Fold or unfold the thinking by a click on its line."""
        if self._thinking_words and event.y - self.gutter.top == 1:
            self.fold_thinking()

    def _current_palettes(self) -> tuple[Palette, Palette]:
        base = self.rich_style
        if self._palettes is None or self._palettes[0].base != base:
            styles = _styles(tuple(sorted(self.app.theme_variables.items())))
            self._palettes = Palette(styles, base), Palette(styles, base + styles["thinking"])
        return self._palettes


def _plain(text: str, style: str) -> Row:
    """Return a row that is no content."""
    return Row([(text, style)], line=-1)


def _one_line(text: str) -> str:
    return sanitize(text).replace("\n", " ")
