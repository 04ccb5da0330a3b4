"""What is copied is what was written, character for character; only the screen shows signs instead."""

from __future__ import annotations

import pytest
from textual.geometry import Offset
from textual.selection import Selection

from termchat.render import Document
from termchat.sanitize import visible
from termchat.tui.widgets.message_rows import LINES, MessageRows

TEXTS = [
    "ශ්\u200dරී ලංකා",
    "می\u200cخواهم بدانم",
    "א\u2067ב\u2069ג\u200f",
    "👨\u200d👩\u200d👧\u200d👦 🏴\U000e0067\U000e0062\U000e007f ❤\ufe0f",
    "a\x1b[31mred\x1b[0m\x07 \x9b2J \u202e \ufeffb",
    "e" + "\u0301" * 50 + "x" * 200,
    "漢字" * 60,
    "x\ty\u00a0z",
    "word " * 40 + "\u2066end\u2069",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("markdown", [True, False])
@pytest.mark.parametrize("width", [3, 40])
def test_N026_copies_are_equal_character_for_character(text: str, markdown: bool, width: int) -> None:
    document = Document(text, markdown=markdown, complete=True)
    document.layout(width)
    assert document.selected(Selection(None, None)) == text
    row = document.row(0)
    assert row is not None
    plain = text.replace("\t", " ") if markdown else text.expandtabs(4)
    for start, end in ((0, len(plain)), (1, len(plain) - 1), (2, 4)):
        if start == 0 and "\t" in text:
            continue
        copied = document.selected(Selection(Offset(start, row.line), Offset(end, row.line)))
        assert copied == plain[start:end], (start, end)
    for y in range(document.height):
        row = document.row(y)
        assert row is not None
        assert visible(row.text) == row.text


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_N026_messages_and_code_are_copied_as_written(role: str) -> None:
    text = "א\u2067ב\u2069 \x1b[2J\n\n```\ncode\u202e\x1b\ttab\n```"
    message = MessageRows("1", role, text)  # type: ignore[arg-type]
    message.layout(40)
    message.place(0)
    assert message.text == text == message.selected(Selection(None, None))
    assert message.selected(Selection(Offset(0, 0), Offset(0, LINES))) == text
    if role == "assistant":
        assert message.code_blocks() == ["code\u202e\x1b\ttab"]


def test_line_ends_of_windows_are_line_ends() -> None:
    document = Document()
    for piece in ("a\r", "\n\r\nb\r\n\r\n- c\r", "\n- d"):
        document.append(piece)
    document.finish()
    document.layout(20)
    assert document.selected(Selection(None, None)) == "a\n\nb\n\n- c\n- d"


def test_one_line_of_100_000_characters() -> None:
    for unit in ("x", "ශ්\u200dරී "):
        text = unit * (100_000 // len(unit))
        document = Document(text, complete=True)
        document.layout(80)
        assert document.selected(Selection(None, None)) == text
