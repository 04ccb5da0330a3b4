"""The block half of Markdown, one line at a time.

CommonMark defines block structure by such a pass (https://spec.commonmark.org/0.31.2/#phase-1-block-structure):
a line first continues the open containers, then may open new ones, and what remains is text of a leaf. Each
line is looked at once, so a growing text costs the same per line however long it is. The containers are not
a tree here: each leaf carries those it sits in, which is all that drawing needs.

The subset: no raw HTML and no link reference definitions (both are text); tables as in GitHub's Markdown. In
a code block that is Markdown itself, as models write a README, one with a language begins and ends inside.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from .fence import Code
from .formula import open_formula
from .leaf import Container, Item, Leaf, Quote
from .paragraph import Paragraph, Rule, Verbatim
from .table import Table, delimiter_row
from .wrap import dedent, indentation

MAX_DEPTH = 16  # markers of deeper containers are text

_HEADING = re.compile(r"(#{1,6})(?:[ \t]+|$)(.*)")
_SETEXT = re.compile(r"(=+|-+)$")
_FENCE = re.compile(r"(`{3,})([^`]*)$|(~{3,})(.*)$")
_MARKDOWN = ("markdown", "md")
_RULE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_MARKER = re.compile(r"(?:([-+*])|(\d{1,9})([.)]))(?=[ \t]|$)")


class BlockParser:
    """Turns lines into leaves. Feed lines without their newline; `leaves` is what has come of them so far.

    `mark` and `rewind` let the last, incomplete line be tried and taken back when more of it is there.
    """

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self._containers: tuple[Container, ...] = ()
        self._open: Leaf | None = None  # the leaf that the next line may continue
        self._blank = False  # there was a blank line since the last leaf began
        self._header = False  # the last line may be the header of a table
        self._formula = ""  # what closes the formula that the open paragraph is in
        self._inner = ""  # the fence of the code block inside the open one
        self._line = -1
        self.mark()

    def mark(self) -> None:
        """Remember this state as the one to return to."""
        last = self.leaves[-1] if self.leaves else None
        lines = len(last.lines) if last else 0
        if last:
            last.settled = lines
        self._marked = len(self.leaves), last, lines
        self._state = self._containers, self._open, self._blank, self._header, self._line
        self._inside = self._formula, self._inner

    def rewind(self) -> None:
        """Return to the state of the last `mark`."""
        self._containers, self._open, self._blank, self._header, self._line = self._state
        self._formula, self._inner = self._inside
        count, last, lines = self._marked
        del self.leaves[count:]
        if last:
            self.leaves[-1] = last
            del last.lines[lines:]

    def feed(self, line: str) -> None:
        """Take in the next line."""
        self._line += 1
        text, column, matched = self._continue_containers(line)
        inside = matched == len(self._containers)
        if inside and isinstance(self._open, Code) and self._continue_code(self._open, text, column):
            return
        if isinstance(self._open, Code):
            self._open = None
        paragraph = self._open if isinstance(self._open, Paragraph) else None
        if self._formula and paragraph is not None and inside and not _blank(text):
            paragraph.lines.append(text)
            self._header, self._formula = False, open_formula(text, self._formula)
            return
        self._formula = ""
        opened = False
        while not _blank(text) and (indent := indentation(text, column)) < 4:
            body, at = dedent(text, column, indent)
            interrupts = paragraph is not None and inside and not opened
            if interrupts and self._underline(body):
                return
            marker = self._container(body, at, indent, matched, interrupts)
            if marker is None:
                if leaf := self._leaf(body, indent):
                    self._close(matched)
                    self._add(leaf)
                    return
                break
            container, text, column = marker
            self._close(matched)
            self._containers += (container,)
            matched += 1
            opened = True
        if _blank(text):
            self._close(matched)
            if opened:  # a place for the marker, until there is content
                self._add(Paragraph(self._line))
                self._open = None
            else:
                self._blank = True
        elif paragraph and not opened:
            paragraph.lines.append(text)  # also if containers were left: a lazy continuation
            self._header = inside and indentation(text, column) < 4
            self._formula = open_formula(text)
        elif isinstance(self._open, Table) and inside and not opened and indentation(text, column) < 4:
            self._open.lines.append(text)
        else:
            self._close(matched)
            if indentation(text, column) >= 4:
                leaf = Code(self._line)
                text, _ = dedent(text, column, 4)
            else:
                leaf = Paragraph(self._line)
                self._formula = open_formula(text)
            leaf.lines.append(text)
            self._add(leaf)
            self._header = True

    def _continue_containers(self, line: str) -> tuple[str, int, int]:
        """Return what follows the markers of the open containers, its column, and how many go on."""
        text, column = line, 0
        for matched, container in enumerate(self._containers):
            indent = indentation(text, column)
            if isinstance(container, Quote):
                body, at = dedent(text, column, indent)
                if indent > 3 or not body.startswith(">"):
                    return text, column, matched
                text, column = dedent(body[1:], at + 1, 1)
            elif _blank(text):
                if self._is_empty(container):  # an item may begin with one blank line at most: it has ended
                    ended = replace(container, width=sys.maxsize)
                    self._containers = (*self._containers[:matched], ended)
            elif indent >= container.width:
                text, column = dedent(text, column, container.width)
            else:
                return text, column, matched
        return text, column, len(self._containers)

    def _is_empty(self, container: Container) -> bool:
        last = self.leaves[-1]
        return last.containers[-1:] == (container,) and _is_place(last)

    def _continue_code(self, code: Code, text: str, column: int) -> bool:
        indent = indentation(text, column)
        if code.fence is None:
            if not _blank(text) and indent < 4:
                return False
            self._blank = self._blank or _blank(text)
            code.lines.append(dedent(text, column, 4)[0])
            return True
        bare = text.strip(" \t") if indent < 4 else ""
        if not self._inner and _closes(bare, code.fence):
            self._open = None
            return True
        if self._inner:
            self._inner = "" if _closes(bare, self._inner) else self._inner
        elif code.language.lower() in _MARKDOWN and (found := _FENCE.match(bare)):
            fence, language = found[1] or found[3], found[2] or found[4]
            self._inner = fence if language and _closes(fence, code.fence) else ""
        code.lines.append(dedent(text, column, min(indent, code.indent))[0])
        return True

    def _underline(self, body: str) -> bool:
        """Turn the open paragraph into a heading or a table if the line says so."""
        paragraph = self._open
        assert isinstance(paragraph, Paragraph)
        header = paragraph.lines[-1]
        body = body.rstrip(" \t")
        aligns = delimiter_row(header, body) if self._header else None
        if aligns is not None:
            table = Table(self._line - 1, aligns)
            table.lines = [header, body]
            if len(paragraph.lines) > 1:
                shorter = Paragraph(paragraph.start)
                shorter.lines = paragraph.lines[:-1]
                self._replace(shorter)
                self._open = None
                self._add(table)
            else:
                self._replace(table)
            return True
        if _SETEXT.match(body):
            heading = Paragraph(paragraph.start, level=1 if body[0] == "=" else 2)
            heading.lines = list(paragraph.lines)
            self._replace(heading)
            self._open = None
            return True
        return False

    def _container(
        self, body: str, column: int, indent: int, matched: int, interrupts: bool
    ) -> tuple[Container, str, int] | None:
        """Return the container that begins here, and the text and column behind its marker."""
        if matched >= MAX_DEPTH:
            return None
        if body.startswith(">"):
            return Quote(), *dedent(body[1:], column + 1, 1)
        found = _MARKER.match(body)
        if found is None or _RULE.match(body):
            return None
        bullet, digits, delimiter = found.groups()
        text, at = body[found.end() :], column + found.end()
        if interrupts and (_blank(text) or (digits and int(digits) != 1)):
            return None
        spaces = indentation(text, at)
        if _blank(text) or spaces > 4:
            spaces = 1
        key, number = object(), int(digits) if digits else None
        before = self._containers[matched] if matched < len(self._containers) else None
        if isinstance(before, Item) and before.marker == (bullet or delimiter):
            key = before.key
            number = None if before.number is None else before.number + 1
        item = Item(key, bullet or delimiter, indent + found.end() + spaces, number)
        return item, *dedent(text, at, spaces)

    def _leaf(self, body: str, indent: int) -> Leaf | None:
        """Return the heading, code block or rule that begins here."""
        if found := _HEADING.match(body):
            heading = Paragraph(self._line, level=len(found[1]))
            text = found[2].rstrip(" \t")
            bare = text.rstrip("#")  # closing hashes are dropped if a space sets them off
            heading.lines = [bare if bare[-1:] in ("", " ", "\t") else text]
            return heading
        if found := _FENCE.match(body):
            self._inner = ""
            return Code(self._line, found[1] or found[3], found[2] or found[4] or "", indent)
        if _RULE.match(body):
            return Rule(self._line)
        return None

    def _close(self, matched: int) -> None:
        self._containers = self._containers[:matched]
        self._open = None

    def _add(self, leaf: Leaf) -> None:
        last = self.leaves[-1] if self.leaves else None
        if last and _is_place(last) and last.containers == self._containers[: len(last.containers)]:
            self.leaves.pop()
            leaf.start, gap = last.start, last.gap
            last = self.leaves[-1] if self.leaves else None
        else:
            gap = last is not None and (self._blank or not _same_list(last.containers, self._containers))
        leaf.enter(self._containers, last.containers if last else (), gap)
        self.leaves.append(leaf)
        self._blank = False
        one_line = isinstance(leaf, Rule) or (isinstance(leaf, Paragraph) and leaf.level > 0)
        self._open = None if one_line else leaf

    def _replace(self, leaf: Leaf) -> None:
        """Put a leaf of another kind in the place of the last one."""
        last = self.leaves.pop()
        before = self.leaves[-1].containers if self.leaves else ()
        leaf.enter(last.containers, before, last.gap)
        self.leaves.append(leaf)
        self._open = leaf


class LineParser:
    """The parser of text without markup: all lines go to one leaf. The same interface as `BlockParser`."""

    def __init__(self) -> None:
        self._leaf = Verbatim(0)
        self.leaves: list[Leaf] = [self._leaf]

    def mark(self) -> None:
        """Remember this state as the one to return to."""
        self._leaf.settled = len(self._leaf.lines)

    def rewind(self) -> None:
        """Return to the state of the last `mark`."""
        del self._leaf.lines[self._leaf.settled :]

    def feed(self, line: str) -> None:
        """Take in the next line."""
        self._leaf.lines.append(line)


def _closes(bare: str, fence: str) -> bool:
    """Whether a line ends the code block that began with a fence."""
    return len(bare) >= len(fence) and bare == fence[0] * len(bare)


def _blank(text: str) -> bool:
    return not text.strip(" \t")


def _is_place(leaf: Leaf) -> bool:
    return isinstance(leaf, Paragraph) and not leaf.lines


def _same_list(one: tuple[Container, ...], other: tuple[Container, ...]) -> bool:
    """Whether two leaves are in one list (in one item or in two of its items)."""
    for a, b in zip(one, other, strict=False):
        if isinstance(a, Item) and isinstance(b, Item) and a.key is b.key:
            return True
        if a is not b:
            return False
    return False
