"""What a text looks like: structure, markup, safety, widths."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len
from rich.style import Style
from textual.geometry import Offset
from textual.selection import Selection

from termchat.render import Document, Palette, Row
from termchat.render.blocks import MAX_DEPTH
from termchat.render.inline import parse_inline
from termchat.render.links import split_link
from termchat.render.wrap import cell_breaks, split_at, word_breaks
from termchat.sanitize import Sanitizer, sanitize, visible


def rows(text: str, width: int = 60, *, markdown: bool = True, complete: bool = True) -> list[Row]:
    document = Document(text, markdown=markdown, complete=complete)
    document.layout(width)
    found = [document.row(y) for y in range(document.height)]
    return [row for row in found if row is not None]


def shown(text: str, width: int = 60, *, markdown: bool = True, complete: bool = True) -> str:
    return "\n".join(row.text.rstrip() for row in rows(text, width, markdown=markdown, complete=complete))


def styles_of(word: str, text: str) -> set[str]:
    found = {style for row in rows(text) for content, style in row.fragments if content.strip() == word}
    assert found, f"{word!r} is not a fragment of its own in {text!r}"
    return {name for style in found for name in split_link(style)[0].split()}


def test_blocks() -> None:
    text = (
        "# Title\n\nSome text\nnext line\n\n- one\n- two\n  1. a\n  2. b\n\n> quote\n> more\n\n---\n\n"
        "```python\nx = 1\n```\n"
    )
    assert shown(text, 20) == (
        "Title\n\nSome text\nnext line\n\n• one\n• two\n  1. a\n  2. b\n\n▌ quote\n▌ more\n\n"
        "────────────────────\n\n▏ python\n▏ x = 1"
    )


def test_a_list_is_numbered_from_its_first_item() -> None:
    assert shown("3. a\n3. b\n9. c") == "3. a\n4. b\n5. c"


def test_blank_lines_between_items_are_shown_where_they_are() -> None:
    assert shown("- a\n- b\n\n- c") == "• a\n• b\n\n• c"


def test_an_item_draws_its_marker_once() -> None:
    assert shown("- first\n\n  second\n\n  > quoted") == "• first\n\n  second\n\n  ▌ quoted"


def test_a_br_is_a_line_break_and_other_html_is_as_written() -> None:
    assert shown("a<br>b <BR/> **c<br />d** e") == "a\nb\nc\nd e"
    assert shown("`a<br>b` \\<br> <b>x</b> <brx> <br") == "`a<br>b` <br> <b>x</b> <brx> <br".replace("`", "")
    assert shown("- a<br>b\n- c") == "• a\n  b\n• c"
    assert shown("```\na<br>b\n```") == "▏ code\n▏ a<br>b"
    table = "| h<br>i | j |\n|---|---|\n| 1. one<br>2. two long<br/>3 | x<br>y |\n| `a<br>b` | z |"
    assert shown(table, 30) == (
        "h           │ j\ni           │\n────────────┼──\n1. one      │ x\n2. two long │ y\n3           │\n"
        "a<br>b      │ z"
    )


def test_inline_styles() -> None:
    text = "a **b** *c* `d` ~~e~~ [f](http://g.h) ***i***"
    assert styles_of("b", text) == {"strong"}
    assert styles_of("c", text) == {"em"}
    assert styles_of("d", text) == {"code"}
    assert styles_of("e", text) == {"strike"}
    assert styles_of("f", text) == {"link"}
    assert styles_of("i", text) == {"strong", "em"}


def test_a_code_block_of_markdown_holds_those_inside_it() -> None:
    """As models write a README; another language, a longer fence and a bare one are as in CommonMark."""
    inside = "# Title\n```bash\nls\n```\nmore\n```` py\n```\n````\nend"
    for fence, language, text in [
        ("```", "markdown", inside),
        ("```", "md", inside),
        ("````", "markdown", "```\n````py\n````\n```"),
    ]:
        document = Document(f"{fence}{language}\n{text}\n{fence}\n\nafter", complete=True)
        assert document.code_blocks() == [text], language
    for language, text in [("text", "```bash\nls"), ("markdown", "a\n~~~\nb"), ("markdown", "``` bash ```")]:
        document = Document(f"```{language}\n{text}\n```\n\nafter", complete=True)
        assert document.code_blocks() == [text], text


@pytest.mark.parametrize(
    ("text", "style", "marked", "drawn"),
    [
        ("**注意：**这是", "strong", "注意：", "注意：这是"),
        ("说**“重点”**是", "strong", "“重点”", "说“重点”是"),
        ("これは**「太字」**です", "strong", "「太字」", "これは「太字」です"),
        ("**한국어(Korean)**는", "strong", "한국어(Korean)", "한국어(Korean)는"),
        ("*（强调）*文字", "em", "（强调）", "（强调）文字"),
        ("~~（删除）~~文字", "strike", "（删除）", "（删除）文字"),
        ("文 * 字 * 文", "em", "", "文 * 字 * 文"),
        ("_（强调）_文字", "em", "", "_（强调）_文字"),
        ('a**"b"**c', "strong", "", 'a**"b"**c'),
    ],
)
def test_emphasis_in_scripts_without_spaces(text: str, style: str, marked: str, drawn: str) -> None:
    assert shown(text) == drawn
    fragments = [fragment for line in parse_inline(text) for fragment in line]
    assert "".join(part for part, styles in fragments if style in styles.split()) == marked


def test_a_link_shows_its_address() -> None:
    assert shown("[docs](https://a.b/c)") == "docs (https://a.b/c)"
    assert shown("<https://a.b/c>") == "https://a.b/c"
    assert shown("![cat](cat.png)") == "cat (cat.png)"


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("[a](https://de.wikipedia.org/wiki/Größe)", "a (https://de.wikipedia.org/wiki/Größe)"),
        ("[a](https://x.org/漢字?q=é&r=%20#ü)", "a (https://x.org/漢字?q=é&r=%20#ü)"),
        ("[a](<b c> 'd')", "a (b c)"),
        ("[a](https://x.org/a_(b)_\\*c\\*)", "a (https://x.org/a_(b)_*c*)"),
        ("<mailto:a@b.org> <a@b.org>", "mailto:a@b.org a@b.org"),
        ("<https://x.org/ü>", "https://x.org/ü"),
        ("[pay](https://pаypal.org/ü)", "pay (https://xn--pypal-4ve.org/%C3%BC)"),  # a Cyrillic letter
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
    ],
)
def test_an_address_is_shown_as_it_is_written(written: str, seen: str) -> None:
    assert shown(written, 90) == seen


def test_reference_links_and_their_definitions_are_shown_as_typed() -> None:
    assert shown("See [docs][1].\n\n[1]: https://a.b") == "See [docs][1].\n\n[1]: https://a.b"


MARKUP = [
    "[/INST] done",
    "[bold",
    "[/]",
    "[red]x[/red] [link=a]b",
    "<b>html</b> <script>alert(1)</script>",
    "[[x]]",
]


@pytest.mark.parametrize("text", MARKUP)
@pytest.mark.parametrize("markdown", [True, False])
def test_B065_markup_is_literal(text: str, markdown: bool) -> None:
    assert shown(text, markdown=markdown) == text
    document = Document(markdown=markdown)
    for character in text:
        document.append(character)
        document.layout(60)
    document.finish()
    document.layout(60)
    assert document.row(0) is not None
    assert document.row(0).text == text  # type: ignore[union-attr]


def test_html_blocks_are_text() -> None:
    assert shown("<div>\n\n*em*\n\n</div>") == "<div>\n\nem\n\n</div>"


def test_a_table_is_aligned() -> None:
    text = "| Name | N |\n|:--|--:|\n| a | 1 |\n| long name | 22 |"
    assert shown(text) == "Name      │  N\n──────────┼───\na         │  1\nlong name │ 22"


def test_a_row_with_too_few_or_too_many_cells() -> None:
    assert shown("|a|b|\n|-|-|\n|1|\n|1|2|3|") == "a │ b\n──┼──\n1 │\n1 │ 2"


def test_a_wide_table_wraps_its_cells() -> None:
    text = "| A | B |\n|---|---|\n| one two three four | five six seven eight |"
    for width in (12, 20, 30):
        assert all(cell_len(row.text) <= width for row in rows(text, width))
    assert shown(text, 21).split("\n")[2:] == [
        "one two   │ five six",
        "three     │ seven",
        "four      │ eight",
    ]


def test_a_table_of_many_columns_leaves_some_out() -> None:
    cells = "|".join(f"column{i}" for i in range(30))
    text = f"|{cells}|\n|{'-|' * 30}\n|{cells}|"
    for row in rows(text, 40):
        assert cell_len(row.text) <= 40
        assert row.text.endswith("…")


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_narrow_widths(width: int) -> None:
    text = (
        "# Head\n\n- item\n  - nested\n    - 漢字\n\n> > quote 👩\u200d👩\u200d👧\n\n"
        "|a|b|\n|-|-|\n|漢字|x|\n\n```\n漢字 code\n```"
    )
    palette = Palette({}, Style())
    for row in rows(text, width):
        assert row.strip(palette, width).cell_length == width


def test_deep_nesting_stops() -> None:
    text = ">" * 5000 + " deep"
    assert shown(text, 200).startswith("▌ " * MAX_DEPTH + ">>>")
    assert rows("- " * 3000 + "x", 80)
    assert rows("\n".join("  " * depth + "- x" for depth in range(300)), 80)


def test_code_is_kept_as_written() -> None:
    text = "text\n\n```make\nall:\n\techo hi\n```\n\n- item\n  ~~~\n  in item\n    more\n  ~~~\n\nend"
    document = Document(text, complete=True)
    assert document.code_blocks() == ["all:\n\techo hi", "in item\n  more"]
    assert Document("a\n\n    indented\n\n    two\n\nend").code_blocks() == ["indented\n\ntwo"]
    assert Document("```\nopen").code_blocks() == ["open"]


def test_code_is_highlighted() -> None:
    text = "```python\ndef f():\n    return 'x'  # note\n```"
    assert "keyword" in styles_of("def", text)
    assert "comment" in styles_of("# note", text)
    assert "inserted" in styles_of("+ b", "```diff\n- a\n+ b\n```")
    assert styles_of("whatever it is", "```nosuchlanguage\nwhatever it is\n```") == {"block"}


def test_a_docstring_longer_than_a_piece_is_right_when_the_block_is_complete() -> None:
    body = "\n".join(f"for line {index} in words" for index in range(60))
    text = f'```python\n"""\n{body}\n"""\nx = 1\n```\n\nend'
    assert styles_of("for line 59 in words", text) == {"block", "string"}


@pytest.mark.parametrize("marker", ["`", "``", "```", "-", "--", "=", "#", "1", "1.", ">", "|--", "*", "~~"])
def test_half_a_marker_is_not_shown_until_it_is_certain(marker: str) -> None:
    assert shown(f"text\n{marker}", complete=False) == "text"
    assert len(shown(f"text\n\n{marker}", complete=False)) == len("text")
    assert shown(f"```\ncode\n{marker}", complete=False) == "▏ code\n▏ code"


def test_an_unfinished_underline_does_not_make_a_heading_flash() -> None:
    document = Document("Introduction\n")
    for character in "- item":
        document.append(character)
        document.layout(60)
        first = document.row(0)
        assert first is not None
        assert first.fragments == [("Introduction", "")]


def test_B073_an_unclosed_fence_does_not_break_the_rest() -> None:
    assert shown("- a\n  ```\n  code\nafter") == "• a\n  ▏ code\n  ▏ code\n\nafter"
    assert shown("> ```\n> code\n\nafter") == "▌ ▏ code\n▌ ▏ code\n\nafter"


CONTROLS = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]52;c;aGk=\x1b\\",
    "\x1bP1$r0m\x1b\\",
    "\x9b2J",
    "\x90x\x9c",
    "a\x08b\x7fc\x00d\x0be\x0cf",
    "\u202eevil\u202c",
    "\u2066x\u2069",
    "line\u2028separator\u2029here",
    "\ud800lone",
    "&#x202e;&#27;&#155;entity",
    "a\u200db\u200d",
]
FORBIDDEN = set(map(chr, [*range(32), 127, *range(128, 160), *range(0x202A, 0x202F), *range(0x2066, 0x2070)]))


@pytest.mark.parametrize("text", CONTROLS)
@pytest.mark.parametrize(
    "frame", ["{}", "**{}**", "`{}`", "- {}", "```{}\n{}\n```", "| {} |\n|---|\n| {} |", "# {}"]
)
def test_control_characters_never_get_through(text: str, frame: str) -> None:
    text = frame.replace("{}", text)
    for markdown in (True, False):
        document = Document(text, markdown=markdown, complete=True)
        document.layout(30)
        for y in range(document.height):
            row = document.row(y)
            assert row is not None
            assert not FORBIDDEN & set(row.text)
            row.text.encode()
        assert not (FORBIDDEN - {"\n"}) & set(visible(document.text))
        assert all(not (FORBIDDEN - {"\n"}) & set(visible(code)) for code in document.code_blocks())


def test_a_removed_control_character_is_seen() -> None:
    assert sanitize("\x1b[1mx\x07") == "␛[1mx␇"
    assert sanitize("a\r\nb\rc") == "a\nb\nc"
    assert sanitize("tab\tkept") == "tab\tkept"


def test_emoji_sequences_are_kept() -> None:
    for emoji in ("👩\u200d👩\u200d👧\u200d👦", "❤\ufe0f\u200d🔥", "🏳\ufe0f\u200d🌈", "👍🏽", "🇩🇪"):
        assert sanitize(f"x {emoji} y") == f"x {emoji} y"


@pytest.mark.parametrize("seed", range(20))
def test_sanitizing_pieces_equals_sanitizing_all(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choices("ab\r\n\x1b[m\u200d😀👩\ufe0f\u202e\t", k=200))
    sanitizer = Sanitizer()
    parts = []
    position = 0
    while position < len(text):
        size = rng.randint(1, 4)
        parts.append(sanitizer.push(text[position : position + size]))
        position += size
    assert "".join([*parts, sanitizer.finish()]) == sanitize(text), f"seed {seed}"


@pytest.mark.parametrize("seed", range(30))
def test_rows_fit_and_nothing_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choices(["word", " ", "  ", "漢", "。", "👩\u200d👧", "e\u0301", "x" * 30, "-"], k=80))
    width = rng.randint(2, 30)
    for breaks in (word_breaks, cell_breaks):
        pieces = split_at([(text, "")], breaks(text, width))
        parts = ["".join(content for content, _ in piece) for piece in pieces]
        assert "".join(parts) == text, f"seed {seed}"
        assert all(cell_len(part.rstrip()) <= width for part in parts), f"seed {seed}"


@pytest.mark.parametrize("seed", range(30))
def test_wrapping_the_last_row_again_equals_wrapping_all(seed: int) -> None:
    rng = random.Random(seed)
    words = ["word", " ", "  ", "漢字", "。", "👩\u200d👧", "x" * 30, "-", "日"]
    one, two = ("".join(rng.choices(words, k=rng.randint(1, 40))) for _ in range(2))
    width = rng.randint(2, 30)
    starts = word_breaks(one, width)
    rest = word_breaks(one[starts[-1] :] + two, width)
    assert [*starts[:-1], *(starts[-1] + start for start in rest)] == word_breaks(one + two, width), (
        f"seed {seed}"
    )


def test_long_paragraphs_keep_their_emphasis() -> None:
    text = " ".join(f"word{i} **bold {i} and on** text" for i in range(2000))
    assert "*" not in shown(text, 80)


def test_a_long_paragraph_reads_the_same_cut_or_not() -> None:
    text = "漢字" * 3000 + " " + "word " * 3000
    assert "".join(row.text for row in rows(text, 40)).replace(" ", "") == text.replace(" ", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["[" * 3000, "*a " * 1500, "`" * 3001, "![](" * 1000, "&amp;" * 800, "_a" * 2000]
)
def test_hostile_markup_is_shown(text: str) -> None:
    assert parse_inline(text)
    assert rows(text * 10, 80)


def selected(document: Document, start: tuple[int, int], end: tuple[int, int]) -> str:
    return document.selected(Selection(Offset(*reversed(start)), Offset(*reversed(end))))


def test_selection_of_all_is_the_source() -> None:
    text = "# T\n\n- **a**\n- b\n\n```py\nx\n```"
    assert Document(text, complete=True).selected(Selection(None, None)) == text


def test_selection_within_a_paragraph_has_no_wrapping() -> None:
    document = Document("one two three four five six seven", complete=True)
    document.layout(10)
    assert selected(document, (0, 4), (0, 18)) == "two three four"


def test_whole_blocks_are_copied_as_source_and_parts_as_shown() -> None:
    document = Document("some **bold** text\n\n- *item*\n- two\n\nlast **line** here", complete=True)
    document.layout(40)
    rows_of = [document.row(y) for y in range(document.height)]
    last = rows_of[-1]
    assert last is not None
    assert selected(document, (0, 5), (last.line, 9)) == "bold text\n\n- *item*\n- two\n\nlast line"


def test_code_is_copied_without_decoration_and_with_tabs() -> None:
    document = Document("```make\nall:\n\techo 'a long line that wraps'\nend\n```", complete=True)
    document.layout(16)
    assert selected(document, (1, 0), (2, 200)) == "all:\n\techo 'a long line that wraps'"
    assert selected(document, (1, 1), (3, 2)) == "ll:\n\techo 'a long line that wraps'\nen"


def test_table_rows_are_copied_whole() -> None:
    document = Document("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |", complete=True)
    document.layout(40)
    assert selected(document, (2, 1), (2, 3)) == "| 1 | 2 |"


@pytest.mark.parametrize("seed", range(20))
def test_any_selection_gives_text(seed: int) -> None:
    rng = random.Random(seed)
    text = (
        "# T\n\npara **x** y\n\n- a\n  - b\n\n> q\n\n```py\nx\n\ty\n```\n\n| a |\n|---|\n| 1 |\n\n---\n\nend"
    )
    document = Document(text, complete=True)
    document.layout(rng.choice([5, 20, 80]))
    content = [row for y in range(document.height) if (row := document.row(y)) and not is_label(row)]
    last = max(row.line for row in content)
    for _ in range(100):
        start, end = sorted((rng.randint(0, last + 1), rng.randint(0, 12)) for _ in range(2))
        copied = selected(document, start, end)
        assert is_part("".join(copied.split()), text), f"seed {seed}: {copied!r} was not written"
        wanted = "".join(selected_of(row, start, end) for row in content)
        assert is_part(wanted, copied), f"seed {seed}, {start} to {end}: {copied!r} lacks {wanted!r}"


def is_label(row: Row) -> bool:
    return any("label" in style for _, style in row.fragments)


def selected_of(row: Row, start: tuple[int, int], end: tuple[int, int]) -> str:
    """The letters of a row that lie in a selection."""
    places = ((char, (row.line, row.offset + at)) for at, char in enumerate(row.content))
    return "".join(char for char, place in places if char.isalnum() and start <= place < end)


def is_part(some: str, text: str) -> bool:
    """Whether text has these characters, in this order."""
    rest = iter(text)
    return all(char in rest for char in some)


def test_text_is_shown_as_typed_without_markdown() -> None:
    assert shown("# no *head*\n  1. x\n\n__init__", markdown=False) == "# no *head*\n  1. x\n\n__init__"


def test_a_finished_document_takes_no_text() -> None:
    document = Document("x", complete=True)
    with pytest.raises(ValueError, match="finished"):
        document.append("y")


@pytest.mark.parametrize("width", range(1, 40))
def test_no_row_is_wider_than_the_pane(width: int) -> None:
    cells = ("a", "ab c", "long cell", "日本語", "supercalifragilistic", "\U0001f600", "**x**", "", "a<br>b")
    for _ in range(20):
        columns = random.randint(1, 7)
        table = ["|".join(["", *random.choices(cells, k=columns), ""]) for _ in range(3)]
        table.insert(1, "|" + "|".join(random.choices(("---", ":-:", "--:"), k=columns)) + "|")
        other = random.choice(("```python\nx = 'long line of code'\n```", "# A heading", "---", "1000. item"))
        inside = random.choice(("", "> ", "- ", "> > "))
        lines = "\n".join([*table, "", other]).split("\n")
        text = "\n".join(
            (inside.replace("-", " ") if number else inside) + line for number, line in enumerate(lines)
        )
        for row in rows(text, width):
            assert cell_len(row.text.rstrip()) <= width, (text, row.text)
