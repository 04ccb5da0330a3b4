"""Paragraphs, headings, rules, and text shown as typed."""

from __future__ import annotations

from .inline import parse_inline, segment_end
from .leaf import Leaf
from .strips import Fragment, line_text
from .wrap import TAB_SIZE, split_at, word_breaks


class Paragraph(Leaf):
    """A paragraph, or with a level a heading. With no lines it is the place of an empty list item."""

    def __init__(self, start: int, level: int = 0) -> None:
        super().__init__(start)
        self.level = level
        self._restart()

    def _look(self) -> tuple[object, ...]:
        return *super()._look(), self.level

    @property
    def text(self) -> str:
        """The Markdown text, without the indentation of its lines."""
        return "\n".join([line.strip(" \t") for line in self.lines])

    def _restart(self) -> None:
        super()._restart()
        self._parsed = ""  # the text of the segments whose rows are kept
        self._end: tuple[list[Fragment], str] = ([], "")  # their last row, and its logical line before that

    def _revise(self, final: bool) -> None:
        if not self.text.startswith(self._parsed):  # the parser took a line back
            self._restart()

    def _grow(self, final: bool) -> None:
        text = self.text
        style = f"heading{self.level}" if self.level else ""
        start = len(self._parsed)
        end = self._end
        while (stop := segment_end(text, start)) is not None:
            end = self._end = self._flow(parse_inline(text[start:stop], style), end)
            self._keep(open_line=True)
            self._rewind()
            start = stop
        self._parsed = text[:start]
        self._flow(parse_inline(text[start:], style, growing=not final), end)

    def _flow(
        self, lines: list[list[Fragment]], end: tuple[list[Fragment], str]
    ) -> tuple[list[Fragment], str]:
        """Add lines, the first of which continues `end`; return the new end."""
        before, starts, fragments = "", [0], end[0]
        for index, line in enumerate(lines):
            before = end[1] if index == 0 else ""
            fragments = end[0] + line if index == 0 else line
            text = line_text(fragments)
            starts = word_breaks(text, self._room)
            self._add_line(fragments, starts, before)
        return split_at(fragments, starts)[-1], self.plain[-1][: len(before) + starts[-1]]


class Rule(Leaf):
    """A thematic break."""

    def _grow(self, final: bool) -> None:
        self._add_row([("─" * self._room, "rule")])
        self.plain.append("---")


class Verbatim(Leaf):
    """Text without markup, shown as typed: what a person wrote, an error message."""

    def _grow(self, final: bool) -> None:
        for index in range(self._done, len(self.lines)):
            text = self.lines[index].expandtabs(TAB_SIZE)
            self._add_growing_line(text, word_breaks)
            if index < self.settled:
                self._done = index + 1
                self._keep()
