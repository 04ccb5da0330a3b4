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
            self.refresh(Region(0, first, width, height - first))

    @property
    def allow_select(self) -> bool:
        return True

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
        above = [Row([(f"{_GLYPHS[self.role]} {self._label}", self.role)], line=-1)]
        self._thinking.layout(width - cell_len(_BAR))
        self._thinking_top = self._thinking.height
        if self._thinking_words:
            state = "thought" if self._has_answer or self._complete else "thinking"
            mark = "▸" if self._is_folded else "▾"
            above.append(Row([(f"{mark} {state}, about {self._thinking_words} words", "muted")], line=-1))
            if not self._is_folded:
                live = self._folded is None and not self._complete
                self._thinking_top = max(0, self._thinking.height - _LIVE_THINKING_ROWS) if live else 0
        changed = self._body.layout(width) + len(above) + self._thinking_height
        below = [Row([(self._note, "muted")], line=-1)] if self._note else []
        if _texts(below) != _texts(self._below):
            changed = min(changed, ...)
        return changed

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._layout(width)
        return self._height

    def render_line(self, y: int) -> Strip:
        ...
