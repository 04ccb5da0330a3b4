"""What a terminal may get of a text, and how many cells that takes."""

from __future__ import annotations

import json
import random

import pytest
import rich.cells

from termchat.cells import cell_len, columns, fit, split_graphemes
from termchat.cli.console import to_json
from termchat.sanitize import Sanitizer, escape, escape_json, one_line, show_controls, visible

UNSAFE = (
    "\x00\x07\x08\x1b\x7f\x85\x9b\x9d\u2028\u202a\u202b\u202c\u202d\u202e"
    "\u2066\u2067\u2068\u2069\u206a\ufff9\ud800"
)
MEANT = {
    "Persian": "می\u200cخواهم",
    "Sinhala": "ශ්\u200dරී",
    "Malayalam": "ന്\u200d",
    "family": "👨\u200d👩\u200d👧\u200d👦",
    "heart": "❤\ufe0f",
    "flag of England": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "flag": "🇩🇪",
    "Hebrew": "עב\u200fרית\u200e",
    "Arabic": "ا\u061cب",
    "ideograph": "葛\U000e0100",
    "Thai": "ภาษา\u200bไทย",
    "combined": "e" + "\u0301" * 50,
}


@pytest.mark.parametrize("char", UNSAFE)
def test_unsafe_characters_become_one_sign_each(char: str) -> None:
    shown = visible(f"a{char}b")
    assert len(shown) == 3
    assert shown.isprintable()
    shown.encode()
    assert cell_len(f"a{char}b") == 3 == rich.cells.cell_len(f"a{char}b"), "it is measured as it is drawn"


@pytest.mark.parametrize("text", MEANT.values(), ids=MEANT)
def test_N026_invisible_characters_that_mean_something_stay(text: str) -> None:
    assert visible(text) == text == show_controls(text) == one_line(text)
    pieces = Sanitizer()
    assert "".join(map(pieces.push, text)) + pieces.finish() == text


def test_tags_that_spell_no_flag_are_seen() -> None:
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "run rm")
    assert visible(f"hi{hidden}") == "hi" + "\ufffd" * 6
    pieces = Sanitizer()
    assert "".join(map(pieces.push, f"hi{hidden}")) == "hi" + "\ufffd" * 6


def test_text_typed_or_pasted_keeps_what_only_reorders() -> None:
    assert show_controls("א\u2067ב\u2069\u202e\x1b[m\r\n\x9b") == "א\u2067ב\u2069\u202e␛[m\n\ufffd"


@pytest.mark.parametrize("seed", range(10))
def test_json_for_a_terminal_has_the_same_value(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choices(UNSAFE[:-1] + '"\\\n\t🏴\U000e0067a漢', k=50))
    document = escape_json(to_json({text: [text]}, indent=2))
    assert json.loads(document) == {text: [text]}
    assert visible(document) == document


def test_json_of_lone_surrogates_is_valid_everywhere() -> None:
    document = to_json("\ud800x")
    assert json.loads(document.encode()) == "\ud800x"


def test_logs_hold_no_raw_escapes() -> None:
    assert escape("a\x1b]0;x\x07\n\tb\u202e\x9b\U000e0041") == "a\\x1b]0;x\\x07\n\tb\\u202e\\x9b\\U000e0041"


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("ශ්\u200dරී", 2),  # a joiner between letters joins their shapes, not their cells
        ("👩\u200d❤\ufe0f\u200d👨", 2),
        ("🏳\ufe0f\u200d🌈x", 3),
        ("1\ufe0f\u20e3", 2),
        ("👍🏽\u200dx", 3),
        ("می\u200cخواهم", 7),
        ("漢字", 4),
        ("ﾊﾝｶｸ", 4),
        ("\u200d", 0),
        ("e" + "\u0301" * 50, 1),
        ("x" * 100_000, 100_000),
    ],
)
def test_cells(text: str, cells: int) -> None:
    assert cell_len(text) == cells == rich.cells.cell_len(text)
    spans, total = split_graphemes(text)
    assert total == cells
    assert [start for start, _, _ in spans][1:] == [end for _, end, _ in spans][:-1], "without gaps"


@pytest.mark.parametrize("text", [*MEANT.values(), "漢字漢字", "a\x1bb", "plain", "🇩🇪🇫🇷🇮🇹"])
def test_N026_nothing_is_cut_within_a_character(text: str) -> None:
    text *= 3
    whole = {text[start:end] for start, end, _ in split_graphemes(text)[0]}
    for width in range(12):
        cut = fit(text, width)
        assert cell_len(cut) == width
        kept = cut.rstrip(" ").removesuffix("…")
        assert {kept[start:end] for start, end, _ in split_graphemes(kept)[0]} <= whole


def test_N026_columns_are_aligned_by_cells() -> None:
    cells = ("漢字", "می\u200cخواهم", "👨\u200d👩\u200d👧\u200d👦", "plain")
    lines = columns([cell, "x"] for cell in cells)
    assert {cell_len(line[: line.rindex("x")]) for line in lines} == {9}
