"""Prompts that begin with a dash, and other arguments that could be two things."""

from __future__ import annotations

import click
import pytest

from termchat.cli.options import apart, names_of
from termchat.cli.prompt import prompt
from termchat.store import Store


@pytest.fixture
def asked(termchat, scripted, home):
    """Run the program; what was stored as the user's message, and under which system prompt."""

    def call(*arguments, stdin=None):
        scripted("Yes.")
        outcome = termchat(*arguments, stdin=stdin)
        assert outcome.code == 0, outcome.err
        with Store(home / "data" / "termchat" / "termchat.db") as store:
            conversation = store.newest()
            return store.path(conversation.id)[0].text, conversation.system

    return call


@pytest.mark.parametrize(
    ("arguments", "text", "system"),
    [
        (["- summarize these points"], "- summarize these points", ""),
        (["--find me a rhyme"], "--find me a rhyme", ""),
        (["--", "- a"], "- a", ""),
        (["-s", "- be brief", "Hi"], "Hi", "- be brief"),
        (["--stop", "- x", "-t", "0", "-\n- a\n- b"], "-\n- a\n- b", ""),
        (["-n", "5", "-n 5 things to do"], "-n 5 things to do", ""),
        (["-c is a language"], "-c is a language", ""),
        (["-sBe brief", "Hi"], "Hi", "Be brief"),
        (["--system=- be brief", "- one"], "- one", "- be brief"),
        (["--", "history"], "history", ""),
        (["-t", "0", "history"], "history", ""),
        (["-5 + 3 = ?"], "-5 + 3 = ?", ""),
    ],
)
def test_N031_what_can_be_no_option_is_a_prompt(asked, arguments, text, system):
    assert asked(*arguments) == (text, system)


@pytest.mark.parametrize(
    ("arguments", "text", "system"),
    [
        (["-n=4", "Hi"], "Hi", ""),
        (["-yt=0.5", "-n=4", "-s=Be brief", "Hi"], "Hi", "Be brief"),
        (["-s==x", "= 4?"], "= 4?", "=x"),
        (["-s", "-n=x", "-t=0", "--", "-n=x"], "-n=x", "-n=x"),
    ],
)
def test_an_equals_sign_behind_a_letter_is_no_part_of_the_value(asked, arguments, text, system):
    """Other programs take `-n=4`, and a system prompt of "=Be brief" would not be noticed."""
    assert asked(*arguments) == (text, system)


def test_an_equals_sign_without_a_value_is_refused(termchat):
    outcome = termchat("-n=", "4", "Hi")
    assert (outcome.code, outcome.out) == (2, "")
    assert "'='" in outcome.err or "extra argument" in outcome.err


def test_N031_from_a_pipe_a_dash_is_a_dash(asked):
    assert asked(stdin=b"- x\n") == ("- x", "")
    assert asked("- sum it up", stdin=b"- x\n") == ("- sum it up\n\n- x", "")


@pytest.mark.parametrize("argument", ["--nonsense", "-5", "-x", "--sytem=be brief"])
def test_N031_one_word_behind_a_dash_is_an_option_and_the_message_names_the_way_out(termchat, argument):
    outcome = termchat(argument)
    assert outcome.code == 2
    assert f"'{argument.partition('=')[0]}'" in outcome.err
    assert "a text that begins with a dash goes behind --: termchat -- TEXT" in outcome.err


def test_N031_what_could_be_both_is_refused_with_both_ways_out(termchat):
    outcome = termchat("-summarize these points")
    assert outcome.code == 2
    assert (
        "can be a text or the option -s; put -- in front of a text, or a blank behind an option"
        in outcome.err
    )


def test_N031_values_of_options_are_values(termchat):
    outcome = termchat("-n", "-5", "Hi")
    assert outcome.code == 2
    assert "-5" in outcome.err
    assert "max_tokens" in outcome.err
    assert termchat("").code == 2


def test_N031_other_commands_that_take_text(termchat, home):
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        turn = store.begin_turn("one", "the - dashed words")
        turn.reply.finish()
    outcome = termchat("history", "search", "- dashed", "words", "--json")
    assert outcome.code == 0, outcome.err
    assert "dashed" in outcome.out
    outcome = termchat("history", "search", "--nonsense")
    assert outcome.code == 2
    assert "termchat history search -- TEXT" in outcome.err


@pytest.mark.parametrize(
    ("args", "result"),
    [
        ([], []),
        (["--json"], ["--json"]),
        (["--"], []),
        (["--", "--", "-x"], ["--", "--", "-x"]),
        (["a", "-t", "0", "b", "--json"], ["-t", "0", "--json", "--", "a", "b"]),
        (["-ycs", "- v", "x"], ["-ycs", "- v", "--", "x"]),
        (["--cid", "-- a", "- b"], ["--cid", "-- a", "--", "- b"]),
        (["-s"], ["-s"]),
    ],
)
def test_options_and_text_come_apart(args, result):
    assert apart(args, names_of(prompt.params)) == result


def test_an_unclear_one_alone():
    with pytest.raises(click.UsageError):
        apart(["-mine is a question", "--json"], names_of(prompt.params))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--jsonl"], "empty_prompt"),
        (["--jsonl", " "], "empty_prompt"),
        (["--jsonl", "--plain", "Hi"], "usage"),
        (["--jsonl", "--nonsense", "Hi"], "usage"),
        (["--jsonl", "-t", "warm", "Hi"], "usage"),
        (["--jsonl", "-t", "-1", "Hi"], "usage"),
        (["--jsonl", "-m", "nothing", "Hi"], "model_unknown"),
        (["--jsonl", "--cid", "a b", "Hi"], "usage"),
    ],
)
def test_every_error_is_an_event_with_jsonl(termchat, arguments, code):
    import json

    outcome = termchat(*arguments)
    assert outcome.code != 0
    event = json.loads(outcome.out)
    assert (event["event"], event["code"]) == ("error", code)
    assert outcome.err == f"termchat: {event['message']}\n"


def test_no_event_where_the_option_was_not_given(termchat):
    assert termchat("--json").out == ""
    assert termchat("-t", "-1", "--", "--jsonl").out == ""
    assert termchat("models", "--jsonl").out == ""


@pytest.mark.parametrize("arguments", [["why", "is", "the", "sky", "blue"], ["-t", "0", "Hi", "there"]])
def test_a_prompt_without_quotes_is_told_of_them(termchat, arguments):
    outcome = termchat(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert "a text of several words is one argument, in quotes: termchat 'TWO WORDS'" in outcome.err
    assert outcome.err.count("\n") == 1
