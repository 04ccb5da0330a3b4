"""What is common to all leaves of a Markdown text: the containers around it, its rows, its logical lines.

A leaf is what holds text (paragraph, heading, code, table, rule). It lays itself out incrementally: rows that
text to come can't change are kept, the others are dropped and made again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..cells import cell_len
from ..sanitize import visible
from .strips import Fragment, Row, line_text
from .wrap import TAB_SIZE, split_at

MIN_CONTENT = 12  # cells that markers and bars leave to the text, as far as the width has them


@dataclass(frozen=True, eq=False, slots=True)
class Quote:
    """A block quote."""


@dataclass(frozen=True, eq=False, slots=True)
class Item:
    """An item of a list.

    key: the same object in all items of a list. width: columns from the marker to the content.
    number: None in a bullet list.
    """

    key: object
    marker: str
    width: int
    number: int | None


Container = Quote | Item

Breaks = Callable[[str, int], list[int]]
"""Where the rows of a text begin in a width: `word_breaks` or `cell_breaks`."""

_BULLETS = "•◦▪"


class Leaf:
    """Base of the leaves. The parser fills `lines`; everything below `layout` is derived from them.

    start: index of the source line the leaf begins at. gap: an empty row goes before it.
    settled: the first so many lines are complete; the rest may be taken back by the parser.
    rows, plain: the rows as they are drawn, and the logical lines they show, with the characters of the
        source, as of the last `layout`.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.lines: list[str] = []
        self.settled = 0
        self.containers: tuple[Container, ...] = ()
        self.gap = False
        self._marks: tuple[list[Fragment], list[Fragment], list[Fragment]] = ([], [], [])
        self.rows: list[Row] = []
        self.plain: list[str] = []
        self._width = -1
        self.base = -1
        self._kept = (0, 0)  # rows and logical lines that stay
        self._done = 0  # source lines they show
        self._line_kept = ""  # and the beginning of the next one

    def enter(self, containers: tuple[Container, ...], before: tuple[Container, ...], gap: bool) -> None:
        """Put the leaf into containers, some of which may hold the leaf before it, too."""
        self.containers, self.gap = containers, gap
        first: list[Fragment] = []
        rest: list[Fragment] = []
        between: list[Fragment] = []
        bullets = 0
        for depth, container in enumerate(containers):
            shared = before[depth : depth + 1] == (container,)
            if isinstance(container, Quote):
                marker, style, below = "▌ ", "quote", "▌ "
            elif container.number is None:
                marker, style, below = f"{_BULLETS[bullets % 3]} ", "marker", "  "
                bullets += 1
            else:
                marker, style = f"{container.number}{container.marker} ", "marker"
                below = " " * len(marker)
            first.append((below if shared else marker, style))
            rest.append((below, style))
            if shared:
                between.append((below, style))
        self._marks = first, rest, between

    def adopt(self, old: Leaf) -> None:
        """Go on from the layout of `old`, which stood here when less of its first line was known."""
        if self._look() == old._look():
            given = {"lines", "settled", "start", "containers"}  # by the parser; all else is layout
            vars(self).update((name, value) for name, value in vars(old).items() if name not in given)

    def _look(self) -> tuple[object, ...]:
        """Return what the look of a line depends on besides the line."""
        return type(self), self._marks, self.gap

    def layout(self, width: int, base: int, final: bool) -> int:
        """Bring rows and logical lines up to date and return the first row that may have changed.

        base: number of the leaf's first logical line. final: no line will be added any more.
        """
        if final:
            self.settled = len(self.lines)
        if (width, base) != (self._width, self.base):
            self._width, self.base = width, base
            self._place(width)
            self._restart()
        open_line = "".join(self.lines[self._done : self._done + 1]).expandtabs(TAB_SIZE)
        if not open_line.startswith(self._line_kept):  # the parser took the line back
            self._restart()
        self._revise(final)
        before = self.rows[self._kept[0] :]
        self._rewind()
        changed = len(self.rows)
        if changed == 0 and self.gap:
            self.rows.append(Row(self._gap_prefix, base, lead=len(self._gap_prefix)))
            self.plain.append("")
        self._grow(final)
        return self._put_back(before, changed)

    def _put_back(self, before: list[Row], first: int) -> int:
        """Keep rows that came out the same, for what was drawn of them; return the first that did not."""
        for index, row in enumerate(before, first):
            if index >= len(self.rows) or not row.same(self.rows[index]):
                return index
            self.rows[index] = row
        return first + len(before)

    def copy(self, first: int, start: int, last: int, end: int | None) -> list[str]:
        """Return the text from character `start` of logical line `first` to before `end` of line `last`."""
        lines = self.plain[first : last + 1]
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][start:]
        return lines

    def _restart(self) -> None:
        """Keep nothing: make every row again."""
        self._kept = (0, 0)
        self._done = 0
        self._line_kept = ""

    def _revise(self, final: bool) -> None:
        """Call `_restart` if kept rows no longer hold."""

    def _grow(self, final: bool) -> None:
        """Add the rows that are not kept."""
        raise NotImplementedError

    def _keep(self, open_line: bool = False) -> None:
        """Keep the rows and lines so far; with `open_line` all but the last of each, which may still grow."""
        self._line_kept = ""
        self._kept = (len(self.rows) - open_line, len(self.plain) - open_line)

    def _rewind(self) -> None:
        del self.rows[self._kept[0] :]
        del self.plain[self._kept[1] :]

    def _add_row(self, content: list[Fragment], offset: int = 0, fill: str = "") -> None:
        """Add a row of the logical line that is added next."""
        prefix = self._first_prefix if len(self.rows) == self.gap else self._prefix
        line = self.base + len(self.plain)
        drawn = [(visible(text), style) for text, style in content]
        self.rows.append(Row(prefix + drawn, line, offset, len(prefix), fill))

    def _add_line(
        self, fragments: list[Fragment], starts: list[int], before: str = "", fill: str = ""
    ) -> None:
        """Add a logical line, or what follows `before` on it, broken at `starts`."""
        for start, piece in zip(starts, split_at(fragments, starts), strict=True):
            self._add_row(piece, len(before) + start, fill)
        self.plain.append(before + line_text(fragments))

    def _add_growing_line(self, text: str, breaks: Breaks, style: str = "", fill: str = "") -> None:
        """Add the last line, in one style, keeping all of its rows but the last: it only ever gets longer."""
        done = len(self._line_kept)
        starts = breaks(text[done:], self._room)
        for start, piece in zip(starts, split_at([(text[done:], style)], starts), strict=True):
            self._add_row(piece, done + start, fill)
        self.plain.append(text)
        self._keep(open_line=True)
        self._line_kept = text[: done + starts[-1]]

    def _place(self, width: int) -> None:
        """Divide the width between what the containers put before the rows and the text."""
        first, rest, gap = self._marks
        self._room = max(min(width, MIN_CONTENT), width - sum(cell_len(text) for text, _ in rest))
        self._first_prefix = _last_cells(first, width - self._room)
        self._prefix = _last_cells(rest, width - self._room)
        self._gap_prefix = _last_cells(gap, width - self._room)

    _room = 1
    _first_prefix: list[Fragment] = []
    _prefix: list[Fragment] = []
    _gap_prefix: list[Fragment] = []


def _last_cells(prefix: list[Fragment], cells: int) -> list[Fragment]:
    """Return the innermost part of a prefix that fits (all its characters are one cell wide)."""
    kept: list[Fragment] = []
    for text, style in reversed(prefix):
        if cells > 0:
            kept.insert(0, (text[-cells:], style))
        cells -= len(text)
    return kept
