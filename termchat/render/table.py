"""Tables. Column widths follow from the first rows; later they rarely change, as that makes all rows anew."""

from __future__ import annotations

import re
from typing import Literal

from rich.cells import set_cell_size

from ..cells import cell_len
from .inline import parse_inline
from .leaf import Leaf
from .strips import Fragment, line_text
from .wrap import split_at, word_breaks

_SAMPLE = 64  # rows that decide the widths exactly, the header and its underline included
_NARROWEST = 4  # cells a column shrinks to before columns are left out at the right
_LONGEST = 1000  # characters of a cell; a longer one is shown without its markup
_GAP = " │ "
_MORE = " …"  # after a row that has more columns

Align = Literal["left", "center", "right"]
Cell = list[list[Fragment]]
"""Its lines."""

_DELIMITER = re.compile(r"(?:[:|]|-(?=\S))[-:|\s]+$")  # a dash and a space would be a list item
_DASHES = re.compile(r":?-+:?$")
_PIPE = re.compile(r"(?<!\\)\|")


def split_cells(line: str) -> list[str]:
    """Return the cells of a row, unescaped pipes removed."""
    cells = [cell.replace("\\|", "|") for cell in _PIPE.split(line.strip())]
    if cells and not cells[0]:
        cells.pop(0)
    if cells and not cells[-1]:
        cells.pop()
    return [cell.strip() for cell in cells]


def delimiter_row(header: str, line: str) -> list[Align] | None:
    """Return the alignments if `line` makes a table of the `header` above it."""
    line = line.strip()
    if "|" not in header or not _DELIMITER.match(line):
        return None
    dashes = [cell.strip() for cell in line.split("|")]
    if dashes and not dashes[0]:
        dashes.pop(0)
    if dashes and not dashes[-1]:
        dashes.pop()
    if not dashes or len(dashes) != len(split_cells(header)) or not all(map(_DASHES.match, dashes)):
        return None
    return [_alignment(cell) for cell in dashes]


def _alignment(dashes: str) -> Align:
    if dashes.endswith(":"):
        return "center" if dashes.startswith(":") else "right"
    return "left"


class Table(Leaf):
    """A table: its lines are the header, the delimiter row and the rows."""

    def __init__(self, start: int, aligns: list[Align]) -> None:
        super().__init__(start)
        self.aligns = aligns
        self._cells: list[list[Cell]] = []  # parsed cells of the settled lines
        self._natural = [1] * len(aligns)  # the widths they want
        self._widths: list[int] = []

    def _look(self) -> tuple[object, ...]:
        return *super()._look(), self.aligns

    def copy(self, first: int, start: int, last: int, end: int | None) -> list[str]:
        """Return the whole source rows: half a row of a table is of no use."""
        return self.plain[first : last + 1]

    def _revise(self, final: bool) -> None:
        while len(self._cells) < self.settled:
            self._cells.append(self._parse(len(self._cells)))
            self._natural = _widened(self._natural, self._cells[-1], len(self._cells) <= _SAMPLE)
        natural = self._natural
        for index in range(len(self._cells), min(len(self.lines), _SAMPLE)):
            natural = _widened(natural, self._parse(index), True)
        widths = _column_widths(natural, self._room)
        if widths != self._widths:
            self._widths = widths
            self._restart()

    def _parse(self, index: int) -> list[Cell]:
        """Return the cells of a line, exactly one for each column."""
        if index == 1:
            return [[[]] for _ in self.aligns]
        style = "head" if index == 0 else ""
        cells = split_cells(self.lines[index])[: len(self.aligns)]
        cells += [""] * (len(self.aligns) - len(cells))
        return [
            parse_inline(cell, style) if len(cell) <= _LONGEST else [[(cell.expandtabs(1), style)]]
            for cell in cells
        ]

    def _grow(self, final: bool) -> None:
        for index in range(self._done, len(self.lines)):
            if index == self.settled:
                self._keep()
                self._done = index
            self._add_cells(index)
        if self.settled == len(self.lines):
            self._keep()
            self._done = self.settled

    def _add_cells(self, index: int) -> None:
        if index == 1:
            self._add_whole([("─┼─".join("─" * width for width in self._widths), "rule")])
        else:
            cells = self._cells[index] if index < len(self._cells) else self._parse(index)
            columns = [
                [row for line in cell for row in split_at(line, word_breaks(line_text(line), width))]
                for cell, width in zip(cells, self._widths, strict=False)
            ]
            for row in range(max(map(len, columns))):
                fragments: list[Fragment] = []
                for column, width, align in zip(columns, self._widths, self.aligns, strict=False):
                    if fragments:
                        fragments.append((_GAP, "rule"))
                    fragments += _aligned(column[row] if row < len(column) else [], width, align)
                self._add_whole(fragments)
        self.plain.append(self.lines[index].strip())

    def _add_whole(self, fragments: list[Fragment]) -> None:
        if len(self._widths) < len(self.aligns) and self._room > len(_MORE):
            fragments.append((_MORE, "rule"))
        self._add_row(fragments)
        self.rows[-1].whole = True


def _widened(natural: list[int], cells: list[Cell], exactly: bool) -> list[int]:
    """Return the widths that columns want after another row.

    Not `exactly` means in large steps: each makes all rows again, so there must be few of them.
    """
    wanted = [max(cell_len(line_text(line)) for line in cell) for cell in cells]
    return [
        have if want <= have else want if exactly else max(want, have + have // 2 + 2)
        for have, want in zip(natural, wanted, strict=True)
    ]


def _column_widths(natural: list[int], room: int) -> list[int]:
    """Return the cells of each column that is shown; the widest give way first."""
    least = [min(width, _NARROWEST) for width in natural]
    if sum(least) + len(_GAP) * (len(least) - 1) > room:
        room = room - len(_MORE) if room > len(_MORE) else room
        while len(least) > 1 and sum(least) + len(_GAP) * (len(least) - 1) > room:
            least.pop()
    natural = natural[: len(least)]
    room = max(1, room - len(_GAP) * (len(natural) - 1))
    most = min(max(natural), room)
    while sum(min(width, most) for width in natural) > room and most > 1:
        most -= 1
    widths = [min(width, most) for width in natural]
    for index, width in enumerate(natural):  # what the last step took too much
        if width > widths[index] and sum(widths) < room:
            widths[index] += 1
    return widths


def _aligned(fragments: list[Fragment], width: int, align: Align) -> list[Fragment]:
    """Return exactly `width` cells: padded, or cut where a character is wider than its column."""
    text = line_text(fragments).rstrip()
    free = width - cell_len(text)
    if free < 0:
        return [(set_cell_size(text, width), fragments[0][1])]
    left = {"left": 0, "center": free // 2, "right": free}[align]
    body = split_at(fragments, [0, len(text)])[0] if len(text) < len(line_text(fragments)) else fragments
    return [(" " * left, ""), *body, (" " * (free - left), "")]
