"""/confidence: doubtful tokens are underlined, in replies from then on, while they come and afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from termchat.tui.screens.answers import Answer, AnswersScreen

REPLY = "Some **bold** words and `code`.\n\n- an item\n- a [link](http://example.org)"


def underlined(driver: Any, row: str) -> str:
    """What is underlined in the last row of the transcript that holds this text."""
    transcript = driver.main.view.transcript
    for y in reversed(range(transcript.size.height)):
        strip = transcript.render_line(y)
        if row in strip.text:
            return "".join(text for text, style, _ in strip if style and style.underline)
    raise AssertionError(f"no row with {row!r}:\n{driver.screen}")


@pytest.fixture
def unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose every token is the likeliest, and unlikely."""
    monkeypatch.setattr("engine.testing.SURE", 10.0)


@pytest.mark.parametrize("kind", ["plain", "NO_COLOR"])
async def test_doubtful_tokens_are_underlined_in_replies_from_now_on(
    open_app: Any, script: Any, unsure: None, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    greedy = "[sampling]\ntemperature = 0\n"
    async with open_app(script(REPLY, REPLY, REPLY, step=0.002), config=greedy) as d:
        await d.say("one")
        await d.say("/confidence")
        assert underlined(d, "Some bold") == "", "nothing is known of it"
        await d.say("two")
        await d.shows("23 of 26 doubtful")
        assert underlined(d, "Some bold").replace(" ", "") == "Someboldwordsandcode."
        assert "anitem" in underlined(d, "an item").replace(" ", "")
        await d.say("/confidence off")
        assert underlined(d, "Some bold") == ""
        assert "23 of" not in d.screen
        await d.say("/confidence on")
        assert "bold" in underlined(d, "Some bold")
        await d.say("/new other")
        await d.press("ctrl+pagedown")
        await d.shows("23 of 26 doubtful")


async def test_a_reply_that_goes_on_keeps_its_marks(open_app: Any, script: Any, unsure: None) -> None:
    greedy = "[sampling]\ntemperature = 0\n"
    async with open_app(script("One two " * 50, " three four"), config=greedy) as d:
        await d.say("/confidence")
        await d.say("/set max_tokens 4")
        await d.say("one")
        await d.shows("4 of 4 doubtful")
        await d.press("f9")
        await d.settle()
        await d.shows("6 of 6 doubtful")
        marked = underlined(d, "three four").replace(" ", "")
        assert marked == "OnetwoOnetwothreefour"


async def test_a_sure_model_has_no_doubts(open_app: Any, script: Any) -> None:
    async with open_app(script(REPLY)) as d:
        await d.say("/confidence")
        await d.say("one")
        await d.shows("0 of 26 doubtful")
        assert underlined(d, "Some bold") == ""


async def test_answers_side_by_side_are_marked_too(open_app: Any, script: Any, unsure: None) -> None:
    async with open_app(
        script("Hi.", "Some words.", "Other words."), config="[sampling]\ntemperature = 0\n"
    ) as d:
        await d.say("one")
        await d.say("/confidence")
        await d.say("/best 2", wait=False)
        await d.until(lambda: isinstance(d.app.screen, AnswersScreen) and not d.conversation.busy)
        await d.shows("Some words.", "Other words.")
        for answer in d.app.screen.query(Answer):
            strips = [answer.transcript.render_line(y) for y in range(4)]
            marked = [
                "".join(text for text, style, _ in strip if style and style.underline) for strip in strips
            ]
            assert any("words" in row for row in marked)
        await d.press("escape")
