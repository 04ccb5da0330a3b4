"""Block structure: the line-by-line parser against markdown-it-py's, an independent one."""

from __future__ import annotations

import random

import pytest
from markdown_it import MarkdownIt

from termchat.render.blocks import BlockParser
from termchat.render.fence import Code
from termchat.render.leaf import Item, Leaf, Quote
from termchat.render.paragraph import Paragraph, Rule
from termchat.render.table import Table, delimiter_row, split_cells
from termchat.render.wrap import indentation

ORACLE = (
    MarkdownIt("commonmark", {"html": False}).enable("table").disable(["reference", "html_block", "inline"])
)

Shape = list[tuple[str, str, object]]


class Watcher(BlockParser):
    """Notices the two cases where markdown-it-py and the specification part.

    A line indented by 4 that leaves a container: by the specification it continues a paragraph or is code,
    whatever it says; markdown-it-py compares it with the indentation of the container that was left, and may
    see a new block. And a table whose header is a lazy continuation: markdown-it-py ends the paragraph there,
    but then makes no table.
    """

    parting = False

    def _continue_containers(self, line: str) -> tuple[str, int, int]:
        text, column, matched = super()._continue_containers(line)
        if matched < len(self._containers) and text.strip() and indentation(text, column) >= 4:
            self.parting = True
        return text, column, matched

    def _underline(self, body: str) -> bool:
        assert self._open is not None
        self.parting |= not self._header and delimiter_row(self._open.lines[-1], body) is not None
        return super()._underline(body)


def shape_of(text: str) -> Shape | None:
    """Our leaves as (path of containers, kind, content); None where the oracle is wrong."""
    parser = Watcher()
    lines = text.split("\n")
    if not lines[-1].strip():
        lines.pop()
    for line in lines:
        parser.feed(line)
    return None if parser.parting else [(path_of(leaf), *content_of(leaf)) for leaf in parser.leaves]


def blank_lines_bare(code: str) -> str:
    return "\n".join(line if line.strip() else "" for line in code.split("\n"))


def path_of(leaf: Leaf) -> str:
    path = ""
    for container in leaf.containers:
        if isinstance(container, Quote):
            path += ">"
        elif isinstance(container, Item):
            path += container.marker if container.number is None else f"{container.number}{container.marker}"
    return path


def content_of(leaf: Leaf) -> tuple[str, object]:
    if isinstance(leaf, Code):
        return "code", (leaf.language, blank_lines_bare(leaf.code))
    if isinstance(leaf, Table):
        rows = [split_cells(line) for index, line in enumerate(leaf.lines) if index != 1]
        width = len(leaf.aligns)
        return "table", (leaf.aligns, [(row + [""] * width)[:width] for row in rows])
    if isinstance(leaf, Rule):
        return "rule", ""
    assert isinstance(leaf, Paragraph)
    return (f"heading{leaf.level}" if leaf.level else "paragraph"), "\n".join(
        line.strip(" \t") for line in leaf.text.split("\n")
    )


def expected(text: str) -> Shape:
    shape: Shape = []
    path: list[str] = []
    numbers: list[int] = []
    table: tuple[list[str], list[list[str]]] = ([], [])
    empty = False
    kind = ""
    for token in ORACLE.parse(text):
        where = "".join(path)
        if token.type == "blockquote_open":
            path.append(">")
            empty = True
        elif token.type in ("ordered_list_open", "bullet_list_open"):
            numbers.append(int(token.attrGet("start") if token.attrGet("start") is not None else 1))
            if token.type == "bullet_list_open":
                numbers[-1] = -(10**9)
        elif token.type in ("ordered_list_close", "bullet_list_close"):
            numbers.pop()
        elif token.type == "list_item_open":
            path.append(token.markup if numbers[-1] < 0 else f"{numbers[-1]}{token.markup}")
            numbers[-1] += 1
            empty = True
        elif token.type in ("list_item_close", "blockquote_close"):
            if empty:
                shape.append((where, "paragraph", ""))
            empty = False
            path.pop()
        elif token.type in ("fence", "code_block"):
            code = blank_lines_bare(token.content.removesuffix("\n"))
            info = token.info.split()
            shape.append((where, "code", (info[0] if info else "", code)))
            empty = False
        elif token.type == "hr":
            shape.append((where, "rule", ""))
            empty = False
        elif token.type == "table_open":
            table = ([], [])
            shape.append((where, "table", table))
            empty = False
        elif token.type == "tr_open":
            table[1].append([])
        elif token.type in ("th_open", "td_open"):
            kind = token.type
            if token.type == "th_open":
                table[0].append(str(token.attrGet("style") or "text-align:left").removeprefix("text-align:"))
        elif token.type == "heading_open":
            kind = f"heading{token.tag[1]}"
        elif token.type == "paragraph_open":
            kind = "paragraph"
        elif token.type == "inline":
            empty = False
            if kind in ("th_open", "td_open"):
                table[1][-1].append(token.content)
            else:
                shape.append(
                    (where, kind, "\n".join(line.strip(" \t") for line in token.content.split("\n")))
                )
    return shape


PIECES = [
    *[""] * 3, "text", "more text here", "- item", "* star", "+ plus", "1. one", "2. two", "7) seven",
    "10. ten", "-", "1.", "> quote", ">", ">> two", "> - q item", "- > i quote", "- - nested", "1. - mixed",
    "# head", "## h2 ##", "####### seven", "#", "```", "```python", "~~~", "````", "code()", "===", "---",
    "- - -", "***", "___", "--", "| a | b |", "|---|---|", "| 1 | 2 |", "a | b", "--- | :-:", "x \\| y | z",
    "|", "<div>", "</div>", "<!-- c -->", "[ref]: http://x.y", "[a][b]", "    code", "\tcode", "  two",
    "   three", "\t- tabbed", "-\ttab item", "1)\ttab", "漢字", "👩\u200d👩\u200d👧 zwj", "*em", "`", "\\",
    "&amp;", "+", "=", "-   wide", "-     five", "1.      six",
]  # fmt: skip


def random_text(rng: random.Random) -> str:
    lines = []
    for _ in range(rng.randint(1, 12)):
        indent = rng.choice(["", "", "", "", " ", "  ", "   ", "    ", "      ", "\t", "  \t"])
        lines.append(indent + rng.choice(PIECES))
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(40))
def test_same_structure_as_markdown_it(seed: int) -> None:
    rng = random.Random(seed)
    compared = 0
    for case in range(50):
        text = random_text(rng)
        if (shape := shape_of(text)) is not None:
            assert shape == expected(text), f"seed {seed}, case {case}: {text!r}"
            compared += 1
    assert compared >= 30
