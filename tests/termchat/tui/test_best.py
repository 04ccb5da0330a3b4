"""/best: several answers side by side while they come; one is kept, the others stay versions."""

from __future__ import annotations

from typing import Any

import pytest

from termchat.tui.screens.answers import Answer, AnswersScreen

WORDS = "word " * 60


async def opened(d: Any, line: str) -> AnswersScreen:
    await d.say(line, wait=False)
    await d.until(lambda: isinstance(d.app.screen, AnswersScreen) and d.app.screen.is_mounted)
    return d.app.screen


@pytest.mark.parametrize(("size", "columns"), [((60, 20), 1), ((100, 30), 2), ((160, 45), 3)])
async def test_answers_side_by_side_and_one_is_kept(
    open_app: Any, script: Any, size: tuple[int, int], columns: int
) -> None:
    model = script("First of all.", "One says this.", "Two says that.", "Three: *nothing*.", step=0.002)
    async with open_app(model, size=size) as d:
        await d.say("say")
        screen = await opened(d, "/best 3")
        await d.until(lambda: not d.conversation.busy)
        await d.shows("One says this.", *["Two says that."] * (size != (60, 20)))
        frames = [answer.region for answer in screen.query(Answer)]
        assert len({frame.y for frame in frames}) == -(-3 // columns)
        assert len({frame.x for frame in frames}) == columns
        assert all(frame.height >= 9 for frame in frames)
        await d.press("right")
        await d.shows("▌ 2", "Two says that.")
        await d.pilot.resize_terminal(70, 24)
        await d.until(lambda: len({answer.region.x for answer in screen.query(Answer)}) == 1)
        await d.press("3")
        await d.shows("▌ 3", "Three: nothing.")
        await d.press("enter")
        await d.until(lambda: d.app.screen is d.main)
        await d.shows("Three: nothing.")
        assert len(d.conversation.siblings(d.conversation.messages[-1])) == 4
        assert d.main.prompt.has_focus
        assert [m.text for m in d.conversation.messages] == ["say", "Three: *nothing*."]
        saved = await d.app.store.call(lambda store: store.path(d.conversation.id))
        assert saved[-1].text == "Three: *nothing*."


async def test_leaving_while_they_come_loses_nothing(open_app: Any, script: Any) -> None:
    async with open_app(script("Hi.", WORDS, WORDS, step=0.01)) as d:
        await d.say("say")
        await opened(d, "/best 2")
        await d.shows("writing", "word word")
        await d.press("escape")
        await d.shows("versions of one message")
        assert d.conversation.busy
        await d.say("/new other", wait=False)
        await d.press("ctrl+pagedown")
        await d.settle()
        first = next(chat for chat in d.app.conversations.all if chat.messages[0].text == "say")
        texts = sorted(m.text for m in first.tree.values() if m.role == "assistant")
        assert texts == ["Hi.", WORDS, WORDS]
        await d.app._main.switch_to(first)
        await opened(d, "/best")
        await d.shows("▌ 1", "answer 3", "Hi.")
        await d.press("escape")


async def test_keeping_one_stops_the_others(open_app: Any, script: Any) -> None:
    async with open_app(script("Hi.", WORDS * 9, WORDS * 9, WORDS, step=0.01)) as d:
        await d.say("say")
        await opened(d, "/best 3")
        await d.shows("word word")
        await d.press("3", "enter")
        await d.settle()
        assert d.conversation.messages[-1].text == WORDS
        others = [m for m in d.conversation.tree.values() if m.role == "assistant"][1:3]
        assert [m.status for m in others] == ["interrupted", "interrupted"]
        assert all(m.text and WORDS.startswith(m.text[:20]) for m in others)


async def test_all_can_be_stopped_and_one_kept(open_app: Any, script: Any) -> None:
    async with open_app(script("Hi.", WORDS * 9, WORDS * 9, step=0.01)) as d:
        await d.say("say")
        await opened(d, "/best 2")
        await d.shows("word word")
        await d.press("ctrl+c")
        await d.until(lambda: not d.conversation.busy)
        await d.shows("stopped")
        await d.press("2", "enter")
        await d.settle()
        assert d.conversation.messages[-1].status == "interrupted"
        assert d.conversation.messages[-1].text


@pytest.mark.parametrize("late", [False, True], ids=["seen", "over before it is looked at"])
async def test_an_answer_that_fails_says_so_and_the_others_go_on(
    open_app: Any, script: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    from engine.request import Request

    take, read, two = Request.take, AnswersScreen.read, tokenizer.encode("Two.")

    def fails(self: Any, run: Any, tokens: list[int], *others: Any) -> Any:
        if tokens[:1] == two[:1]:
            raise ValueError("a fault")
        return take(self, run, tokens, *others)

    def read_at_the_end(screen: Any) -> None:
        if not screen._conversation.busy:
            read(screen)

    monkeypatch.setattr(Request, "take", fails)
    if late:
        monkeypatch.setattr(AnswersScreen, "read", read_at_the_end)
    async with open_app(script("Hi.", "One.", "Two.", "Three.", step=0.002), size=(160, 40)) as d:
        await d.say("say")
        await opened(d, "/best 3")
        await d.until(lambda: not d.conversation.busy)
        await d.shows("One.", "Three.", "this reply failed")
        await d.press("2", "enter")
        assert isinstance(d.app.screen, AnswersScreen), "there is nothing to keep"
        await d.press("1", "enter")
        await d.shows("‹2/3›", "One.")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/best 1", "/best takes a number from 2 to 16"),
        ("/best 17", "/best takes a number from 2 to 16"),
        ("/best x", "/best takes a number from 2 to 16"),
        (f"/regen {'9' * 5000}", "/regen takes a number from 1 to 16"),
        (f"/edit {'9' * 5000}", "/edit takes a number from 1 to 1"),
    ],
)
async def test_a_number_that_cannot_be_is_said(open_app: Any, script: Any, line: str, says: str) -> None:
    async with open_app(script("Hi.")) as d:
        await d.say("say")
        await d.say(line)
        await d.shows(says)
