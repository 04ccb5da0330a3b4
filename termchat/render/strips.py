"""Rows of styled text, and the palette that gives their style names a theme's colours.

A style name is a list of words such as `heading2 strong code`; each word adds its colours and attributes to
the ones before it. Rows hold names, not colours, so a theme switch renders again only the rows on screen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.selection import Selection
from textual.strip import Strip

from ..cells import cell_len, split_graphemes
from .links import linked, split_link

_SYNTAX = (
    *("keyword", "string", "number", "comment", "function", "type", "constant", "builtin", "decorator"),
    *("operator", "inserted", "deleted"),
)
_FAINT = ("chat-muted", "chat-thinking", "syntax-comment")

Fragment = tuple[str, str]
"""A piece of text and its style name ("" is the body text)."""


def line_text(fragments: Iterable[Fragment]) -> str:
    """Return the text of fragments without their styles."""
    return "".join([text for text, _ in fragments])


_DECORATION = {"quote", "marker", "rule", "bar"}
_ASCII = str.maketrans("•◦▪▌▏│─┼…❯◆○▸▾", "*-+|||-+~>#o>v")


class Palette:
    """Rich styles for style names, on top of a base style (the widget's own colours).

    ascii: markers, bars and lines are drawn with plain characters.
    """

    def __init__(self, styles: Mapping[str, Style], base: Style, *, ascii: bool = False) -> None:
        self.base = base
        self._ascii = ascii
        self.links = not ascii  # a terminal that lacks signs may show the control sequence as text
        self._styles = styles
        self._cache: dict[str, Style] = {"": base}
        self._under: dict[str, Palette] = {}

    def under(self, name: str) -> Palette:
        """Return the palette of text that is all in one style."""
        if name not in self._under:
            self._under[name] = Palette(self._styles, self.style(name), ascii=self._ascii)
        return self._under[name]

    def mark(self, name: str) -> Style:
        """Return what a style name alone adds, for text that is drawn already."""
        return self._styles[name]

    def signs(self, text: str) -> str:
        """Return decoration as it is to be drawn."""
        return text.translate(_ASCII) if self._ascii else text

    def style(self, name: str) -> Style:
        """Return the style of a name; words the theme does not know change nothing."""
        found = self._cache.get(name)
        if found is None:
            parts = (self._styles[word] for word in name.split() if word in self._styles)
            found = self._cache[name] = sum(parts, self._cache[""])
        return found


class Row:
    """One row of cells.

    fragments: the text as it is drawn, the first `lead` of them decoration (markers, bars) that is not part
        of the content.
    line, offset: which logical line of the document the content belongs to, and where in it the row begins
        (in characters): a paragraph that wraps is one logical line. Selections are made in these coordinates.
        A negative line is no content and can't be selected.
    whole: the row can't be selected in part (rows of a table).
    fill: style name of the cells to the right of the text.
    """

    __slots__ = ("_palette", "_strip", "fill", "fragments", "lead", "line", "offset", "whole")

    def __init__(
        self,
        fragments: list[Fragment],
        line: int,
        offset: int = 0,
        lead: int = 0,
        fill: str = "",
        whole: bool = False,
    ) -> None:
        self.fragments = fragments
        self.line = line
        self.offset = offset
        self.lead = lead
        self.fill = fill
        self.whole = whole
        self._strip: Strip | None = None
        self._palette: Palette | None = None

    @property
    def text(self) -> str:
        """What the row shows, without padding."""
        return line_text(self.fragments)

    @property
    def content(self) -> str:
        """The part of the row that belongs to its logical line."""
        return line_text(self.fragments[self.lead :])

    def same(self, other: Row) -> bool:
        """Whether both show and are the same content in the same place."""
        return (
            self.fragments == other.fragments
            and (self.line, self.offset, self.lead) == (other.line, other.offset, other.lead)
            and (self.fill, self.whole) == (other.fill, other.whole)
        )

    def strip(self, palette: Palette, width: int) -> Strip:
        """Return the row as a strip of exactly `width` cells, with the offsets that text selection needs."""
        if self._strip is None or self._palette is not palette or self._strip.cell_length != width:
            self._strip = self._render(palette, width)
            self._palette = palette
        return self._strip

    def _render(self, palette: Palette, width: int) -> Strip:
        segments = []
        offset = self.offset
        for index, (text, style) in enumerate(self.fragments):
            if self.line < 0 or style.rpartition(" ")[2] in _DECORATION:
                text = palette.signs(text)
            if self.line < 0:
                segments.append(Segment(text, palette.style(style)))
                continue
            name, address = split_link(style)
            at = palette.style(name) + Style.from_meta({"offset": (offset, self.line)})
            if address and palette.links:
                at = linked(at, address)
            if index < self.lead:
                # A segment a character, all with one offset: pointing at decoration selects from the content.
                segments += [Segment(character, at) for character in text]
            else:
                segments.append(Segment(text, at))
                offset += len(text)
        return Strip(segments).adjust_cell_length(width, palette.style(self.fill))

    def characters_at(self, cell: int) -> tuple[int, int]:
        """Return from where to where in the logical line the character at a cell stands.

        In decoration that is nothing, before the row's content, and right of the text nothing, behind it.
        """
        at = cell_len(line_text(self.fragments[: self.lead]))
        if cell < at:
            return self.offset, self.offset
        content = self.content
        for start, end, cells in split_graphemes(content)[0]:
            at += cells
            if cell < at:
                return self.offset + start, self.offset + end
        return self.offset + len(content), self.offset + len(content)

    def selected_cells(self, selection: Selection) -> tuple[int, int] | None:
        """Return from where to where the row is selected, in cells, or None."""
        span = selection.get_span(self.line) if self.line >= 0 else None
        if span is None:
            return None
        start, end = (0, -1) if self.whole else span
        return self.cells(start, sys.maxsize if end == -1 else end)

    def cells(self, start: int, end: int) -> tuple[int, int] | None:
        """Return from which cell to which characters `start` to before `end` of its line stand, or None."""
        content = self.content
        start, end = max(0, start - self.offset), min(len(content), end - self.offset)
        lead = cell_len(line_text(self.fragments[: self.lead]))
        return (lead + cell_len(content[:start]), lead + cell_len(content[:end])) if start < end else None


def text_styles(variables: Mapping[str, str]) -> dict[str, Style]:
    """Return the style words that rows use, from the theme variables of an app (see `termchat.themes`)."""
    block = Style(bgcolor=Color.parse(variables["syntax-background"]).rich_color)
    heading = _ink(variables, "chat-heading") + Style(bold=True)
    muted = _ink(variables, "chat-muted")
    return {
        "strong": Style(bold=True),
        "em": Style(italic=True),
        "strike": Style(strike=True),
        "head": Style(bold=True),
        "code": _ink(variables, "chat-code"),
        "link": _ink(variables, "chat-link") + Style(underline=True),
        "url": muted,
        "quote": muted,
        "rule": muted,
        "muted": muted,
        "doubtful": _ink(variables, "warning") + Style(underline=True),
        "unlikely": _ink(variables, "warning") + Style(underline=True, bold=True),
        "bar": muted,
        "label": muted + Style(italic=True),
        "block": block,
        "marker": _ink(variables, "chat-marker"),
        "user": _ink(variables, "chat-user") + Style(bold=True),
        "assistant": _ink(variables, "chat-assistant") + Style(bold=True),
        "thinking": _ink(variables, "chat-thinking") + Style(italic=True),
        "heading1": heading + Style(underline=True),
        **{f"heading{level}": heading for level in range(2, 7)},
        **{word: _ink(variables, f"syntax-{word}") for word in _SYNTAX},
    }


def _ink(variables: Mapping[str, str], name: str) -> Style:
    color = Color.parse(variables[name])
    if color.ansi == -1 and name in _FAINT:
        return Style(dim=True)  # the terminal's text colour alone would not set it off
    return Style(color=color.rich_color)
