"""A text that streams in ends up as the same rows as the whole text at once."""

from __future__ import annotations

import random

import pytest
from textual.selection import Selection

from termchat.render import Document, Row

WORDS = [
    "alpha", "beta", "<br>", "x<br />y", "**bold", "words**", "*em*", "`code`", "~~gone~~", "[link](http://a.b/c?d=e)",
    "[red]x[/red]", "[/INST]", "<b>raw</b>", "&amp;", "&#x202e;", "漢字が続く長い文章です。", "مرحبا",
    "بالعالم",
    "שלום", "🇩🇪", "👍🏽", "👩\u200d👩\u200d👧\u200d👦", "❤\ufe0f", "e\u0301", "\\*", "**", "__x__", "`", "[",
    "![img](u)", "a\u200db", "\u200d", "<http://auto.link>", "supercalifragilisticexpialidocious",
    "https://example.com/a/long/address?with=query&more=1",
]  # fmt: skip
LINES = [
    "# Heading", "## Two ##", "Setext", "====", "----", "- item", "  - nested", "    - deeper", "* star",
    "1. one", "2. two", "10) ten", "> quote", "> > nested", "> - item in quote", "lazy line", "```",
    "```python", "```md", "  ```js", "~~~", "def f(x): return {'a': 1}  # comment", '"""docstring', 'end"""',
    "\tindented with a tab", "    code", "| a | b | c |", "|---|:-:|--:|", "| 1 | 2 | 3 |",
    "| long cell with words | `x` | **y** |", "|", "---", "***", "[ref]: http://example.com 'title'",
    "one<br>two<br /> three <BR", "| 1<br>2 | <br/> | x |",
    "[text][ref]", "<div class='x'>", "</div>", "<!-- comment -->", "", "", "", "``", "`", "~~", "-", "1",
    "1.", "+", "#", "|--", "=", "\x1b[31mred\x1b[0m", "a\x07b\x9bc", "\u202eevil", "-\ttab",
]  # fmt: skip


LONG_BLOCKS = [
    lambda n: ["", "| n | some text |", "|---|---|", *(f"| {i} | {'word ' * (i % 7)}|" for i in range(n))],
    lambda n: ["```python", *(f"x_{i} = {i}  # {'y' * (i % 50)}" for i in range(n)), "```"],
    lambda n: [f"{'  ' * (i % 3)}- item {i} {'word ' * (i % 9)}" for i in range(n)],
    lambda n: [f"> line {i} of a quote" for i in range(n)],
]


def random_markdown(rng: random.Random) -> str:
    lines = []
    for _ in range(rng.randint(1, 25)):
        kind = rng.random()
        if kind < 0.5:
            line = rng.choice(LINES)
        elif kind < 0.985:
            line = " ".join(rng.choices(WORDS, k=rng.randint(1, 60)))
        elif kind < 0.993:
            line = "".join(rng.choices("abc 漢🙂*`", k=10_000))
        else:
            line = "x" * 10_000
        if rng.random() < 0.01:
            lines += rng.choice(LONG_BLOCKS)(rng.randint(50, 150))
        lines.append(rng.choice(["", "", "", "  ", "   ", "    ", "> ", "- "]) + line)
    return rng.choice(["\n", "\n", "\n", "\r\n", "\r"]).join(lines) + rng.choice(["", "\n", "\n\n"])


def cuts(rng: random.Random, text: str) -> list[str]:
    """The text in pieces, most of them a few characters long."""
    pieces = []
    start = 0
    size = rng.choice([5, 50, 500])
    while start < len(text):
        stop = start + rng.randint(1, size)
        pieces.append(text[start:stop])
        start = stop
    return pieces


def rows(document: Document, width: int) -> list[Row]:
    document.layout(width)
    found = []
    while (row := document.row(len(found))) is not None:
        found.append(row)
    assert len(found) == document.height
    return found


def texts(document: Document, width: int) -> list[str]:
    return [row.text for row in rows(document, width)]


def same(one: list[Row], other: list[Row]) -> bool:
    return [key(row) for row in one] == [key(row) for row in other]


def key(row: Row) -> tuple[object, ...]:
    return row.fragments, row.line, row.offset, row.lead, row.fill, row.whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(80))
def test_streamed_rows_equal_rows_at_once(seed: int) -> None:
    rng = random.Random(seed)
    text = random_markdown(rng)
    width = rng.choice([1, 2, 7, 20, 40, 80, 80, 120])
    markdown = seed % 8 != 0
    document = Document(markdown=markdown)
    pieces = cuts(rng, text)
    given: list[str] = []
    for piece in pieces:
        document.append(piece)
        given.append(piece)
        if rng.random() < 25 / len(pieces):
            assert rows_before_change(document, width), f"seed {seed}: a row said to be as before is another"
        if rng.random() < 2 / len(pieces):
            so_far = Document("".join(given), markdown=markdown)
            assert texts(document, width) == texts(so_far, width), f"seed {seed}, after {len(given)} pieces"
    document.finish()
    whole = Document(text, markdown=markdown, complete=True)
    assert same(rows(document, width), rows(whole, width)), f"seed {seed}, width {width}"
    assert document.text == whole.text
    assert document.code_blocks() == whole.code_blocks()


def rows_before_change(document: Document, width: int) -> bool:
    """Lay out; whether the rows that are said to be as before are."""
    before = [document.row(y) for y in range(document.height)]
    first = document.layout(width)
    return first <= document.height and all(
        document.row(y) is before[y] for y in range(min(first, len(before)))
    )


FORMULAS = [
    "\\[", "\\]", "$$", "$", "\\(", "\\)", "\\\\", "x_1", "*y*", "\\frac{a}{b}", "$5", "`$`", "- a", "= b",
    "===", "---", "$x_i * y_i$", "\\( \\{1,2\\} \\)", "\\[ E = mc^2 \\]", "$$a_1$$", "", "> ", "# c", "1. n",
    "text", "| a |", "```",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_N027_streamed_formulas_equal_formulas_at_once(seed: int) -> None:
    rng = random.Random(seed)
    lines = [" ".join(rng.choices(FORMULAS, k=rng.choice([1, 1, 2, 5]))) for _ in range(rng.randint(1, 12))]
    text = "\n".join(rng.choice(["", "", "> ", "  "]) + line for line in lines)
    document, given = Document(), ""
    for piece in cuts(rng, text):
        document.append(piece)
        given += piece
        assert rows_before_change(document, 30), f"seed {seed}"
        assert texts(document, 30) == texts(Document(given), 30), f"seed {seed}, after {given!r}"
    document.finish()
    whole = Document(text, complete=True)
    assert same(rows(document, 30), rows(whole, 30)), f"seed {seed}"
    assert "".join(document.selected(Selection(None, None)).split()) == "".join(text.split())
