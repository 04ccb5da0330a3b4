r"""Formulas in TeX keep their characters, on the screen and in the copy; all else is Markdown as before."""

from __future__ import annotations

import pytest
from textual.geometry import Offset
from textual.selection import Selection

from termchat.render import Document

FORMULAS = [
    r"\[ E = mc^2 \]",
    r"\( \{1,2\} \)",
    r"$x_i * y_i * z_i$",
    r"$$\underbrace{a}_{P_1},\dots,\underbrace{b}_{P_2}$$",
    r"$\text{a `b` *c*}$",
    r"\(a_1 \\ b_1\)",
    "$$\na_1\n- b_1 *c*\n===\n# d\n| e |\n\\, f_1\n$$",
    "\\[\n\\begin{aligned}\na &= b_1 \\\\\n1. &= c_1*d*\n\\end{aligned}\n\\]",
]
FRAMES = [
    "{}",
    "so {} and",
    "**bold {} text**",
    "- {}\n- b",
    "> {}",
    "1. a\n   {}",
    "# {}",
    "[link {} x](http://a.b)",
]


def drawn(text: str, *, complete: bool = True) -> str:
    document = Document(text, complete=complete)
    document.layout(200)
    return "\n".join(row.text.rstrip() for y in range(document.height) if (row := document.row(y)))


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("frame", FRAMES)
def test_N027_every_character_of_a_formula_is_drawn_and_copied(formula: str, frame: str) -> None:
    if "\n" in formula:
        if frame.startswith(("#", "[", "so", "**")):
            return  # it does not begin its line there, or a heading is one line
        inside = {"- ": "  ", "> ": "> ", "1. ": "   "}
        indent = next((value for key, value in inside.items() if frame.startswith(key)), "")
        formula, bare = formula.replace("\n", f"\n{indent}"), formula
    else:
        bare = formula
    text = frame.replace("{}", formula)
    shown = drawn(text)
    for line in bare.split("\n"):
        assert line in shown, shown
    document = Document(text, complete=True)
    document.layout(200)
    content = [row.content for y in range(document.height) if (row := document.row(y))]
    first = next(n for n, row in enumerate(content) if bare.split("\n")[0] in row)
    row = document.row(first)
    assert row is not None
    at = row.content.index(bare.split("\n")[0]) + 1  # from its second character on
    lines = bare.count("\n")
    end = Offset(len(content[first + lines]) - (0 if lines else 1), row.line + lines)
    copied = document.selected(Selection(Offset(at, row.line), end))
    assert copied.replace("\n   ", "\n").startswith((bare[1:], bare[1:-1])), copied


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("costs $5 and $10 *now*", "costs $5 and $10 now"),
        ("$5 for *this* and US$ 10 `x`", "$5 for this and US$ 10 x"),
        ("$HOME/*x*/$USER", "$HOME/x/$USER"),
        ("a $ *b* $ c", "a $ b $ c"),
        (r"\$5 *em* \$6", "$5 em $6"),
        ("`$a` *em* `b$`", "$a em b$"),
        ("`\\(` *em* `\\)`", "\\( em \\)"),
        ("```\n$x_1$ \\(\n```\n*em* \\)", "▏ code\n▏ $x_1$ \\(\n\nem )"),
        (r"\(unclosed *em*", "(unclosed em"),
        (r"\\(a *em* \\)", r"\(a em \)"),
        ("$$$ *em* $$$", "$$$ em $$$"),
        (r"*ls* \*.py", "ls *.py"),
    ],
)
def test_N027_outside_of_formulas_markdown_is_as_before(text: str, shown: str) -> None:
    assert drawn(text) == shown


def test_N027_a_formula_that_streams_in_does_not_flash() -> None:
    text = r"so \(x_1 * y_1"
    for length in range(text.index("x"), len(text) + 1):
        assert drawn(text[:length], complete=False) == text[:length].rstrip()


def test_N027_cells_of_a_table_hold_formulas() -> None:
    assert "$x_1*2*$ │ \\(y_{1}\\)" in drawn("| a | b |\n|---|---|\n| $x_1*2*$ | \\(y_{1}\\) |")


def test_many_signs_that_close_nothing_cost_little() -> None:
    for sign in ("$a ", "\\( ", "$$a ", "$`", "\\[\n"):
        document = Document(sign * 3000, complete=True)
        assert document.layout(80) <= document.height  # a hang would be seen
