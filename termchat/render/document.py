"""A text that grows, as rows for a width."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from textual.selection import Selection

from ..sanitize import LineEnds
from .blocks import BlockParser, LineParser
from .fence import Code
from .leaf import Leaf
from .strips import Row

# The beginning of a line that is nothing but the beginning of a marker: a fence, underline, heading, list
# item or table row. It is not shown until more has come, or it would flash as something else.
_HALF_MARKER = re.compile(r"(?:`+|~+|[-=+*_ \t]+|#{1,6}|\d{1,9}[.)]?|[|:\- \t]+)?")


class Document:
    """Text that is appended to, parsed and laid out as far as it has changed.

    markdown: whether the text is Markdown; otherwise it is shown as typed.
    first_line: number of the first logical line, so that several documents can share one selection.
    `append` only stores; the work is done by the next `layout`.
    """

    def __init__(
        self, text: str = "", *, markdown: bool = True, complete: bool = False, first_line: int = 0
    ) -> None:
        self._parser = BlockParser() if markdown else LineParser()
        self._markdown = markdown
        self._line_ends = LineEnds()
        self._pending: list[str] = []
        self._lines: list[str] = []  # complete lines
        self._partial = ""  # the line without an end yet
        self._complete = False
        self._unread = self._unlaid = True
        self._width = 0
        self._settled = 0  # leaves that no text to come can change, but for the last
        self._closed = 0  # leaves whose rows are in `_rows`
        self._rows: list[Row] = []
        self.first_line = first_line
        self._base = first_line  # where the logical lines of the next leaf begin
        self.append(text)
        if complete:
            self.finish()

    def renumber(self, first_line: int) -> None:
        """Number the logical lines from here on; they are laid out again."""
        if first_line != self.first_line:
            self.first_line, self._width = first_line, 0

    def append(self, text: str) -> None:
        """Add text at the end."""
        if self._complete:
            raise ValueError("the document is finished: text can no longer be appended")
        self._pending.append(text)
        self._unread = self._unlaid = True

    def finish(self) -> None:
        """Say that no text will follow: what was waiting for its continuation is shown as it is."""
        self._complete = self._unread = self._unlaid = True

    @property
    def text(self) -> str:
        """The text so far, with newlines as line ends."""
        self._parse()
        return "\n".join([*self._lines, self._partial])

    @property
    def height(self) -> int:
        """Rows as of the last `layout`."""
        return len(self._rows) + sum(len(leaf.rows) for leaf in self._tail)

    def code_blocks(self) -> list[str]:
        """Return the code of each code block, as it was written."""
        self._parse()
        return [leaf.code for leaf in self._parser.leaves if isinstance(leaf, Code)]

    def layout(self, width: int) -> int:
        """Bring the rows up to date for `width` cells; return the first that may differ from before."""
        width = max(1, width)
        if width == self._width and not self._unlaid:
            return self.height
        self._parse()
        self._unlaid = False
        if width != self._width:
            self._width, self._rows, self._closed, self._base = width, [], 0, self.first_line
        first = None
        top, base = len(self._rows), self._base
        for index, leaf in enumerate(self._tail, self._closed):
            closed = self._complete or index < self._settled - 1
            before = len(leaf.rows)
            kept = leaf.layout(width, base, closed)
            if first is None and (kept < len(leaf.rows) or before != len(leaf.rows)):
                first = top + kept
            top += len(leaf.rows)
            base += len(leaf.plain)
            if closed:
                self._rows += leaf.rows
                self._closed, self._base = index + 1, base
        return top if first is None else first

    def row(self, y: int) -> Row | None:
        """Return row `y` of the last layout, or None below the last."""
        if y < len(self._rows):
            return self._rows[y]
        y -= len(self._rows)
        for leaf in self._tail:
            if y < len(leaf.rows):
                return leaf.rows[y]
            y -= len(leaf.rows)
        return None

    def selected(self, selection: Selection) -> str:
        """Return the text of a selection in logical coordinates (see `Row`).

        Leaves that are selected as a whole give their source, others the text that is shown of them, tables
        whole rows; line breaks made by wrapping are never in it.
        """
        start = selection.start.transpose if selection.start is not None else (self.first_line, 0)
        end = selection.end.transpose if selection.end is not None else (sys.maxsize, 0)
        if start <= (self.first_line, 0) and selection.end is None:
            return self.text
        self.layout(self._width or 80)  # logical lines are the same at any width
        source = [*self._lines, self._partial]
        lines: list[str] = []
        for leaf, stop in self._stops():
            first, last = leaf.base + leaf.gap, leaf.base + len(leaf.plain) - 1
            if lines and lines[-1] and leaf.gap and end > (first, 0):
                lines.append("")
            if start <= (first, 0) and end >= (last, len(leaf.plain[-1])):
                lines += source[leaf.start : stop]  # with the blank lines after it
            elif start < (last, len(leaf.plain[-1])) and end > (first, 0):
                begin = start if start > (first, 0) else (first, 0)
                finish = end if end[0] <= last else (last, None)
                lines += leaf.copy(begin[0] - leaf.base, begin[1], finish[0] - leaf.base, finish[1])
        return "\n".join(lines).rstrip("\n")

    def placed(self, first: int) -> Iterator[tuple[Leaf, int, str, bool]]:
        """The leaves from number `first` on: where the source of each begins, that, and whether it is closed.

        As of the last layout.
        """
        source, line, offset = [*self._lines, self._partial], 0, 0
        for number, (leaf, stop) in enumerate(self._stops()):
            if number == first:
                line, offset = leaf.start, sum(len(each) + 1 for each in source[: leaf.start])
            if number >= first:
                text = "\n".join(source[line:stop])
                yield leaf, offset, text, number < self._closed
                line, offset = stop, offset + len(text) + 1

    def _stops(self) -> Iterator[tuple[Leaf, int]]:
        """Each leaf, and the index of the source line behind its last."""
        leaves = self._parser.leaves
        stops = [*(leaf.start for leaf in leaves[1:]), len(self._lines) + 1][: len(leaves)]
        return zip(leaves, stops, strict=True)

    @property
    def _tail(self) -> list[Leaf]:
        return self._parser.leaves[self._closed :]

    def _parse(self) -> None:
        """Take in what was appended."""
        if not self._unread:
            return
        self._unread = False
        text = self._line_ends.push("".join(self._pending))
        self._pending.clear()
        if self._complete:
            text += self._line_ends.finish()
        *lines, self._partial = (self._partial + text).split("\n")
        guessed = self._parser.leaves[self._settled :]
        self._parser.rewind()
        for line in lines:
            self._parser.feed(line)
        self._lines += lines
        self._parser.mark()
        settled, self._settled = self._settled, len(self._parser.leaves)
        shown = self._complete or not self._markdown or not _is_half_marker(self._partial)
        if self._partial.strip(" \t") and shown:
            self._parser.feed(self._partial)
        for old, new in zip(guessed, self._parser.leaves[settled:], strict=False):
            new.adopt(old)


def _is_half_marker(line: str) -> bool:
    """Whether an incomplete line, quote marks aside, may still become another block than it seems now."""
    return _HALF_MARKER.fullmatch(line.lstrip(" \t>").rstrip()) is not None
