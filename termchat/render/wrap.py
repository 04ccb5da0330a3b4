"""Breaking styled text into rows of at most `width` cells; white space at a line's beginning in columns.

Greedy and from left to right, so all rows but the last stay the same when text is added: wrapping the last
row again together with the new text gives what wrapping everything would.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..cells import cell_len, split_graphemes
from .strips import Fragment

TAB_SIZE = 4

# Scripts written without spaces: a row may break between any two of these characters.
WIDE = (
    "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
    "\U00020000-\U0003fffd"
)
# Punctuation that may not begin a row.
_CLOSING = "、。，．！？：；）」』】〉》〕｝・ー…"
_WORD = re.compile(rf"[{WIDE}][{_CLOSING}]*\s*|[^\s{WIDE}]+\s*|\s+")


def rows_of(parts: Iterable[str], gap: str, width: int) -> list[str]:
    """The parts in rows of at most `width` cells, as long as none is longer; none is broken."""
    rows: list[str] = []
    for part in parts:
        if rows and cell_len(rows[-1] + gap + part) <= width:
            rows[-1] += gap + part
        else:
            rows.append(part)
    return rows


def word_breaks(text: str, width: int) -> list[int]:
    """Return where each row of `text` begins, breaking between words; longer words are cut."""
    if len(text) <= width and text.isascii():
        return [0]
    starts = [0]
    used = 0
    for match in _WORD.finditer(text):
        word = match.group()
        bare = word.rstrip()
        size = cell_len(bare)
        if used + size > width:
            if used:
                starts.append(match.start())
                used = 0
            if size > width:
                cuts, used = _cut(bare, width)
                starts += [match.start() + cut for cut in cuts]
                size = 0
        used += size + cell_len(word[len(bare) :])
    return starts


def cell_breaks(text: str, width: int) -> list[int]:
    """Return where each row of `text` begins, breaking at the last cell that fits (for code)."""
    if text.isascii():
        return list(range(0, max(1, len(text)), width))
    return [0, *_cut(text, width)[0]]


def _cut(text: str, width: int) -> tuple[list[int], int]:
    """Return where to cut text that is wider than a row, and the cells used on the last row."""
    cuts = []
    used = 0
    for start, _, cells in split_graphemes(text)[0]:
        if used and used + cells > width:
            cuts.append(start)
            used = 0
        used += cells
    return cuts, used


def split_at(fragments: list[Fragment], starts: list[int]) -> list[list[Fragment]]:
    """Cut fragments at character positions: piece i goes from starts[i] (the first is 0) to starts[i + 1]."""
    if len(starts) == 1:
        return [fragments]
    pieces: list[list[Fragment]] = [[]]
    position = 0
    for text, style in fragments:
        begin = 0
        while len(pieces) < len(starts) and starts[len(pieces)] < position + len(text):
            cut = starts[len(pieces)] - position
            if cut > begin:
                pieces[-1].append((text[begin:cut], style))
            pieces.append([])
            begin = cut
        pieces[-1].append((text[begin:], style))
        position += len(text)
    return pieces


def indentation(text: str, column: int) -> int:
    """Return the columns of white space that `text`, standing at `column`, begins with (tab stops of 4)."""
    at = column
    for character in text:
        if character == " ":
            at += 1
        elif character == "\t":
            at += 4 - at % 4
        else:
            break
    return at - column


def dedent(text: str, column: int, columns: int) -> tuple[str, int]:
    """Remove up to `columns` columns of white space; what is left of a tab becomes spaces."""
    goal = column + columns
    index = 0
    while column < goal and index < len(text) and text[index] in " \t":
        column += 1 if text[index] == " " else 4 - column % 4
        index += 1
    return " " * (column - goal) + text[index:], min(column, goal)
