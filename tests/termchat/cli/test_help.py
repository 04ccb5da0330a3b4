"""Help texts, whatever the terminal and the interpreter are like."""

from __future__ import annotations

import subprocess
import sys

import pytest

from termchat.cli.completion import INSTALL
from termchat.cli.prompt import EXAMPLES

COMMANDS = [[], ["models"], ["models", "quantize"], ["history"], ["batch"], ["config", "set"], ["completion"]]
COPIED = {line.strip() for line in (*EXAMPLES, *INSTALL.values())}
"""Lines that are there to be copied, which stay whole."""


@pytest.mark.parametrize("columns", [1, 20, 33, 50, 59, 60, 80, 200])
def test_the_help_of_narrow_terminals_says_all_and_fits(termchat, monkeypatch, columns):
    for command in COMMANDS:
        monkeypatch.setenv("COLUMNS", "100")
        whole = termchat(*command, "--help")
        monkeypatch.setenv("COLUMNS", str(columns))
        outcome = termchat(*command, "--help")
        assert outcome.code == 0
        lines = [line for line in outcome.out.splitlines() if line.strip() not in COPIED]
        wide = [line for line in lines if len(line) > max(columns, 20)]
        assert columns == 60 or not wide, (command, wide)
        # A word longer than a line is cut where the line ends.
        assert "".join(outcome.out.split()) == "".join(whole.out.split())


def test_without_docstrings_the_help_is_the_same():
    for command in COMMANDS:
        texts = [
            subprocess.run(
                [sys.executable, *flags, "-m", "termchat", *command, "--help"],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            ).stdout
            for flags in ([], ["-OO"])
        ]
        assert texts[0] == texts[1]
        if command == []:
            assert "Chat with a language model" in texts[0]
            assert "Read, search, rename, export, import and delete conversations." in texts[0]
