"""Parts of a text that are marked where it is drawn, whatever markup stands around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .document import Document
from .leaf import Leaf
from .strips import Row

_NEAR = 48
"""Characters of markup that may stand between two that are drawn."""


class Mark(NamedTuple):
    """Characters `start` to before `end` of a logical line, in a style."""

    start: int
    end: int
    style: str


class Marks:
    """Where spans of a document's text are among its logical lines; a closed leaf is looked at once.

    What Markdown draws is the text without its markup, in the same order: each character that is drawn is the
    next such one of the text, and what has no counterpart there, as a bullet, is passed over.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._closed: dict[int, list[Mark]] = {}
        self._open: dict[int, list[Mark]] = {}
        self._leaves = 0  # closed ones that were looked at

    def update(self, spans: Sequence[tuple[int, int, str]]) -> None:
        """Find the spans (start, end, style) of the text, in order, after a layout; more may have come."""
        self._open = {}
        for leaf, offset, text, closed in self._document.placed(self._leaves):
            inside = [span for span in spans if offset <= span[0] and span[1] <= offset + len(text) + 1]
            found = _found(leaf, text, offset, inside, self._document.first_line) if inside else {}
            if closed:
                self._leaves += 1
                self._closed |= found
            else:
                self._open |= found

    def of(self, row: Row) -> tuple[Mark, ...]:
        """The marks of the logical line that a row shows; none in a table, whose cells are padded."""
        if row.whole:
            return ()
        line = row.line - self._document.first_line
        return tuple(self._closed.get(line) or self._open.get(line) or ())


def _found(
    leaf: Leaf, text: str, offset: int, spans: Iterable[tuple[int, int, str]], first_line: int
) -> dict[int, list[Mark]]:
    """The marks of a leaf by line. text: its source, which begins at `offset` of the document's."""
    places: list[tuple[int, int] | None] = [None] * len(text)
    at = 0
    for number, line in enumerate(leaf.plain, leaf.base - first_line):
        for column, character in enumerate(line):
            if character.isspace():  # there may be more of them than in the text, as between cells of a table
                place = at if at < len(text) and text[at].isspace() else -1
            else:
                place = text.find(character, at, at + _NEAR)
            if place >= 0:
                places[place] = number, column
                at = place + 1
    marks: dict[int, list[Mark]] = {}
    for start, end, style in spans:
        drawn = [place for place in places[start - offset : end - offset] if place is not None]
        for number in {number for number, _ in drawn}:
            columns = [column for line, column in drawn if line == number]
            marks.setdefault(number, []).append(Mark(min(columns), max(columns) + 1, style))
    return marks
