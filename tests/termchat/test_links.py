"""Addresses in replies as links of the terminal (OSC 8): whole in every row, harmless whatever they hold."""

import re

import pytest
from rich.console import Console
from rich.style import Style

from termchat.render.document import Document
from termchat.render.inline import parse_inline
from termchat.render.links import LONGEST, link_word, split_link
from termchat.render.strips import Palette

OPENED = re.compile("\x1b]8;id=([0-9a-f]+);([^\x1b]*)\x1b\\\\(.*?)\x1b]8;;\x1b\\\\")


def links(text: str) -> list[tuple[str, str]]:
    """What leads somewhere in a text, and where."""
    found = [(piece, split_link(style)[1]) for line in parse_inline(text) for piece, style in line]
    return [(piece, address) for piece, address in found if address]


def drawn(text: str, width: int, *, ascii: bool = False) -> str:
    document = Document(text, complete=True)
    document.layout(width)
    palette = Palette({}, Style(), ascii=ascii)
    console = Console(color_system="truecolor", force_terminal=True, width=width)
    rows = (document.row(y) for y in range(document.height))
    return "\n".join(row.strip(palette, width).render(console) for row in rows if row is not None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.b/c_d_e?x=1&y=2.", [("https://a.b/c_d_e?x=1&y=2",) * 2]),
        ("(https://a.b/X_(y)), and", [("https://a.b/X_(y)",) * 2]),
        ("见https://a.b。", [("https://a.b",) * 2]),
        ("**https://a.b**", [("https://a.b",) * 2]),
        ("<https://a.b>", [("https://a.b",) * 2]),
        ("[a](https://a.b)", [("a", "https://a.b"), (" (https://a.b)", "https://a.b")]),
        ("[a](https://a.b/ü)", [(t, "https://a.b/%C3%BC") for t in ("a", " (https://a.b/ü)")]),
        ("<me@a.b>", [("me@a.b", "mailto:me@a.b")]),
        ("[a](/etc/passwd)", []),
        ("[a](javascript:alert)", []),
        ("[a](ssh://x)", []),
        ("`https://a.b` https:// https:///x", []),
    ],
)
def test_an_address_is_a_link(text: str, found: list[tuple[str, str]]) -> None:
    assert links(text) == found


def test_a_link_in_several_rows_is_one_and_leads_to_the_whole_address() -> None:
    address = "https://example.com/" + "long/" * 12
    pieces = OPENED.findall(drawn(f"See {address} there.", 20))
    assert "".join(text for _, _, text in pieces) == address
    assert {(id, target) for id, target, _ in pieces} == {(pieces[0][0], address)}
    assert len(pieces) > 3


@pytest.mark.parametrize("evil", ["\x1b]8;;\x07", "\x1b\\", "\x9c", "\x07", " \u202e", "\ud800", "\x00"])
def test_no_address_ends_its_sequence(evil: str) -> None:
    for text in (f"[x](<https://a.b/{evil}c>)", f"https://a.b/{evil}c", f"<https://a.b/{evil}c>"):
        rest = OPENED.sub(r"\3", drawn(text, 60))
        assert re.sub("\x1b\\[[0-9;]*m", "", rest).isprintable()
    assert re.fullmatch("link:[!-~]+", link_word(f"https://a.b/{evil}c"))


def test_an_endless_address_and_a_terminal_without_signs_have_no_links() -> None:
    assert not link_word("https://a.b/" + "x" * LONGEST)
    assert "\x1b]" not in drawn("https://a.b", 40, ascii=True)
