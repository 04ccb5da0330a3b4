"""What is done in one place stays there: a rule that stands twice is soon two rules."""

import re
from pathlib import Path

import pytest

import termchat
from termchat.errors import did_you_mean
from termchat.units import NOT_YET, duration, milliseconds, number, percent, rate, size

FOLDER = Path(termchat.__file__).parent
PLACES = {
    "names that are like another": ("difflib", {"errors.py"}),
    "numbers with decimals": (r":\.[\d{]\S*f\}", {"units.py"}),
    "ranges of control characters": (r"x7f-\\x9f", {"sanitize.py", "tui/terminal/input.py"}),
    "byte order marks": ("BOM_UTF", {"files.py"}),
    "the sentence on a fault": ("has a fault", {"errors.py"}),
    "the way up a tree of messages": ("lead in a circle", {"messages.py"}),
    "TOML": (r"^\s*import tomllib", {"files.py"}),
    "exit codes": (r"^[A-Z_]+ = [1-9]\d*$.*EXIT_CODES", {"cli/errors.py"}),
}


@pytest.mark.parametrize("what", PLACES)
def test_a_rule_stands_in_one_place(what: str) -> None:
    pattern, places = PLACES[what]
    found = re.compile(pattern, re.MULTILINE | re.DOTALL)
    files = [file for file in FOLDER.rglob("*.py") if found.search(file.read_text(encoding="utf-8"))]
    assert {str(file.relative_to(FOLDER)) for file in files} == places


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("temprature", {}, "did you mean 'temperature'?"),
        ("temprature", {"form": "/{}"}, "did you mean /temperature?"),
        ("", {}, "known are 'temperature', 'top_k', 'top_p'"),
        ("zzz", {"like": 0.5}, ""),
        ("top", {"form": "{}", "most": 2}, "did you mean top_k or top_p?"),
        ("temp", {"like": 0.9}, "did you mean 'temperature'?"),
        ("to", {"like": 0.9}, ""),
        ("temperature" * 100_000, {"form": "{}"}, "known are temperature, top_k, top_p"),
    ],
)
def test_the_name_that_is_meant(name: str, options: dict, expected: str) -> None:
    assert did_you_mean(name, ("temperature", "top_k", "top_p"), **options) == expected


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("theme", ("model", "ui.theme"), "ui.theme"),
        ("m-Q4_K_S.gguf", ("m-BF16.gguf", "m-Q4_K_M.gguf"), "m-Q4_K_M.gguf"),  # all end alike
        ("llama3.2-1.5b", ("qwen2.5-0.5b", "llama3.2-1b"), "llama3.2-1b"),
    ],
)
def test_a_dot_stands_before_an_ending_as_well_as_behind_a_table(
    name: str, known: tuple[str, ...], expected: str
) -> None:
    assert did_you_mean(name, known, "{}", like=0.5) == f"did you mean {expected}?"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(84.26), "84.3"),
        (number(2, 2), "2.00"),
        (rate(19.96), "20.0"),
        (rate(20), "20"),
        (milliseconds(4.2), "4.2 ms"),
        (milliseconds(84.4), "84 ms"),
        (milliseconds(1250), "1.25 s"),
        (percent(0.999), "99 %"),
        (percent(1), "100 %"),
        (size(98_400_000), "98.4 MB"),
        (duration(7800), "2 h 10 min"),
        *[(each(None), NOT_YET) for each in (number, rate, milliseconds, percent, size)],
    ],
)
def test_numbers_for_people(shown: str, expected: str) -> None:
    assert shown == expected
