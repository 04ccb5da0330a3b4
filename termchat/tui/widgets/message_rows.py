"""One message of a conversation: its text, which may grow, as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from textual.selection import Selection

from ...render import Document, Mark, Marks, Row
from ...render.wrap import rows_of
from ...sanitize import visible

Role = Literal["user", "assistant", "system"]

GLYPHS: Mapping[Role, str] = {"user": "❯", "assistant": "◆", "system": "○"}
LINES = 1 << 32
"""So many numbers are there for the logical lines of a message; one half is for its thinking."""

_AS_TYPED = ("user", "system")
_LIVE_THINKING_ROWS = 6  # of the thinking that goes on, so much is shown
_BAR = "│ "  # before the thinking


class MessageRows:
    """A message. `append` only stores; `layout` renders what has come since, and nothing else.

    label: who speaks. note: parts of the line below, such as the speed; between: what stands between them.
    marked: spans of the text (start, end, style) that are marked, in order; there may be more at each layout.
    No text can style or move anything: control characters are drawn as signs, markup is literal.
    """

    def __init__(
        self,
        id: str,
        role: Role,
        text: str = "",
        *,
        thinking: str = "",
        label: str = "",
        note: Sequence[str] = (),
        between: str = " · ",
        complete: bool = True,
    ) -> None:
        self.id = id
        self.role = role
        self.label = label or role
        self.note = note
        self._between = between
        self.complete = complete
        self._thinking = Document()
        self._body = Document(markdown=role not in _AS_TYPED, first_line=LINES // 2)
        self._marked: Sequence[tuple[int, int, str]] = ()
        self._marks: Marks | None = None
        self._characters = self._newlines = self._thinking_words = 0
        self._in_word = False  # the thinking ends in the middle of a word
        self._folded: bool | None = None  # None: open until the answer begins
        # What is shown, from the top: these rows, the thinking from a row on, the body, these rows.
        self._above: list[Row] = []
        self._thinking_top = 0
        self._below: list[Row] = []
        self.width = 0
        self.append(text, thinking)
        if complete:
            self.finish()

    @property
    def text(self) -> str:
        """The text without the thinking, as it was written."""
        return self._body.text

    @property
    def marked(self) -> Sequence[tuple[int, int, str]]:
        """The spans that are marked."""
        return self._marked

    @marked.setter
    def marked(self, spans: Sequence[tuple[int, int, str]]) -> None:
        if spans is not self._marked:
            self._marked, self._marks = spans, None

    def marks(self, row: Row) -> tuple[Mark, ...]:
        """What is marked of the logical line that a row of the body shows."""
        return self._marks.of(row) if self._marks is not None and row.line >= self._body.first_line else ()

    def code_blocks(self) -> list[str]:
        """The code of each code block, as written."""
        return self._body.code_blocks()

    def place(self, number: int) -> None:
        """Make it the message of this number in its conversation, for selections."""
        self._thinking.renumber(number * LINES)
        self._body.renumber(number * LINES + LINES // 2)

    def append(self, text: str = "", thinking: str = "") -> None:
        """Store what has come."""
        if text:
            self._body.append(text)
            self._characters += len(text)
            self._newlines += text.count("\n")
        if thinking:
            self._thinking.append(thinking)
            self._thinking_words += len(thinking.split()) - (self._in_word and not thinking[0].isspace())
            self._in_word = not thinking[-1].isspace()

    def finish(self) -> None:
        """Say that no text will follow."""
        self.complete = True
        self._body.finish()
        self._thinking.finish()

    def fold_thinking(self, folded: bool | None = None) -> None:
        """Hide or show the thinking; None changes it."""
        self._folded = not self.folded if folded is None else folded

    @property
    def folded(self) -> bool:
        """Whether the thinking is hidden."""
        return self._characters > 0 if self._folded is None else self._folded

    def is_fold(self, y: int) -> bool:
        """Whether row `y` is the one that folds the thinking."""
        return y == 1 and len(self._above) > 1

    def rows(self, width: int) -> int:
        """How many rows it takes: exact for the width of the last layout, for another one an estimate."""
        return self.height if width == self.width else 3 + self._newlines + self._characters // max(1, width)

    @property
    def height(self) -> int:
        """Rows as of the last layout."""
        return len(self._above) + self._thinking_height + self._body.height + len(self._below)

    @property
    def _thinking_height(self) -> int:
        """Rows of the thinking that are shown, and one to set it off."""
        shown = self._thinking.height - self._thinking_top
        return shown + 1 if shown else 0

    def layout(self, width: int) -> int:
        """Bring the rows up to date; return the first that may have changed."""
        before = [row.text for row in self._above], self._thinking_height
        self.width = width
        self._thinking.layout(width - len(_BAR))
        self._thinking_top = self._thinking.height
        self._above = [_plain(f"{GLYPHS[self.role]} {_one_line(self.label)}", self.role)]
        if self._thinking_words:
            state = "thought" if self._characters or self.complete else "thinking"
            mark = "▸" if self.folded else "▾"
            words = f"{self._thinking_words} word{'s' * (self._thinking_words != 1)}"
            self._above.append(_plain(f"{mark} {state}, {words}", "muted"))
            if not self.folded:
                goes_on = self._folded is None and not self.complete
                self._thinking_top = max(0, self._thinking.height - _LIVE_THINKING_ROWS) if goes_on else 0
        note = rows_of(map(_one_line, self.note), self._between, width)
        self._below = [_plain(row, "muted") for row in note]
        first = self._body.layout(width)
        if self._marked:
            self._marks = self._marks or Marks(self._body)
            self._marks.update(self._marked)
        same = before == ([row.text for row in self._above], self._thinking_height)
        return len(self._above) + self._thinking_height + first if same else 0

    def row(self, y: int) -> tuple[str, Row]:
        """Return row `y` of the last layout, and what stands before it, in the style of the thinking."""
        if y < len(self._above):
            return "", self._above[y]
        y -= len(self._above)
        if y < self._thinking_height:
            thought = self._thinking.row(y + self._thinking_top)
            return ("", _plain("")) if thought is None else (_BAR, thought)
        y -= self._thinking_height
        if (row := self._body.row(y)) is not None:
            return "", row
        y -= self._body.height
        return "", self._below[y] if y < len(self._below) else _plain("")

    def selected(self, selection: Selection) -> str:
        """Return what is selected of it; the thinking only where it is selected in part."""
        first, stop = self._thinking.first_line, self._thinking.first_line + LINES
        start = selection.start.y if selection.start is not None else first - 1
        end = selection.end.y if selection.end is not None else stop
        if start < first and end >= stop:
            return self.text
        if start >= stop or end < first:
            return ""
        parts = [document.selected(selection) for document in (self._thinking, self._body)]
        return "\n".join(part for part in parts if part)


def _plain(text: str, style: str = "") -> Row:
    """Return a row that is no content."""
    return Row([(text, style)], line=-1)


def _one_line(text: str) -> str:
    return visible(" ".join(text.splitlines()))
