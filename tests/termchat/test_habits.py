"""What people type from habit leads to something that there is."""

from __future__ import annotations

import pytest

from termchat import habits
from termchat.cli.models import models
from termchat.tui.commands import COMMANDS


@pytest.mark.parametrize("word", habits._PROGRAM)
def test_what_is_typed_instead_of_a_word_is_there(word: str) -> None:
    _, name, *rest = habits._PROGRAM[word].split()
    if name == "models":
        assert rest[0] in models.commands
    else:
        assert name in ("-m", "--help", "--version", "config")


def test_commands_of_a_chat_that_are_meant_are_there_and_what_means_them_is_not() -> None:
    ours = {command.slash for command in COMMANDS}
    assert set(habits._SLASH.values()) <= ours
    assert not ours & habits._SLASH.keys()
