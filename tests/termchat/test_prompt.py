"""The box the user types in, on a (headless) terminal."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from termchat.themes import variable_defaults
from termchat.tui.widgets.prompt import Prompt


class PromptApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield Prompt()

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        self.sent.append(event.text)


@asynccontextmanager
async def box(width: int = 60, height: int = 24) -> AsyncIterator[tuple[Pilot[None], Prompt, list[str]]]:
    app = PromptApp()
    async with app.run_test(size=(width, height)) as pilot:
        prompt = app.query_one(Prompt)
        prompt.focus()
        await pilot.pause()
        yield pilot, prompt, app.sent


async def paste(pilot: Pilot[None], prompt: Prompt, text: str) -> None:
    prompt.post_message(events.Paste(text))
    await pilot.pause()


@pytest.mark.slow
async def test_enter_sends_and_three_keys_begin_a_line() -> None:
    async with box() as (pilot, prompt, sent):
        await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d")
        assert sent == []
        await pilot.press("enter")
        assert sent == ["a\nb\nc\nd"]
        assert prompt.text == "a\nb\nc\nd", "the owner decides when it is cleared"
        await pilot.press("ctrl+enter")
        assert len(sent) == 2


async def test_a_new_line_replaces_the_selection() -> None:
    async with box() as (pilot, prompt, _):
        prompt.load("hello")
        prompt.select_all()
        await pilot.press("ctrl+j")
        assert prompt.text == "\n"


@pytest.mark.slow
async def test_it_grows_as_far_as_its_owner_lets_it() -> None:
    async with box() as (pilot, prompt, _):
        prompt.styles.max_height = 12  # with its border
        heights = []
        for _ in range(15):
            heights.append(prompt.size.height)
            await pilot.press("ctrl+j")
            await pilot.pause()
        assert heights == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10, 10]
        prompt.load("x" * 56 * 3)
        await pilot.pause()
        assert 3 <= prompt.size.height <= 4, "wrapped rows count"


async def test_B069_a_paste_of_several_lines_is_one_draft() -> None:
    async with box() as (pilot, prompt, sent):
        await pilot.press("x")
        await paste(pilot, prompt, "one\ntwo\r\nthree\rfour\n")
        assert prompt.text == "xone\ntwo\nthree\nfour\n"
        assert sent == []
        await pilot.press("enter")
        assert sent == ["xone\ntwo\nthree\nfour\n"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "count"), [("line of text\n", 15_400), ("x", 200_000), ("漢字 и текст\n", 10_000)]
)
async def test_B069_a_large_paste_is_a_token_and_complete_when_sent(line: str, count: int) -> None:
    text = line * count
    async with box() as (pilot, prompt, sent):
        await pilot.press("s", "e", "e", "space")
        await paste(pilot, prompt, text)
        await pilot.press("space", "o", "k")
        unit = f"{text.count(chr(10)) + 1} lines" if "\n" in text else f"{len(text)} characters"
        assert prompt.text == f"see [Pasted #1 +{unit}] ok"
        await pilot.press("enter")
        assert len(sent[0]) == len(text) + len("see  ok")
        digest = hashlib.sha256(sent[0].removeprefix("see ").removesuffix(" ok").encode()).hexdigest()
        assert digest == hashlib.sha256(text.encode()).hexdigest()


async def test_several_pastes_and_one_taken_back() -> None:
    async with box() as (pilot, prompt, sent):
        one, two = "a\n" * 20, "b\n" * 30
        await paste(pilot, prompt, one)
        await pilot.press("space")
        await paste(pilot, prompt, two)
        assert prompt.text == "[Pasted #1 +21 lines] [Pasted #2 +31 lines]"
        assert prompt.value == f"{one} {two}"
        await pilot.press("backspace")
        assert prompt.text == "[Pasted #1 +21 lines] "
        await pilot.press("enter")
        assert sent == [f"{one} "]


async def test_a_typed_token_is_text() -> None:
    async with box() as (_, prompt, __):
        prompt.load("[Pasted #1 +3 lines]")
        assert prompt.value == "[Pasted #1 +3 lines]"


async def test_a_token_of_a_text_before_is_text() -> None:
    async with box() as (pilot, prompt, _):
        await paste(pilot, prompt, "a\n" * 20)
        token = prompt.text
        prompt.load("")
        prompt.insert(token)
        assert prompt.value == token


async def test_pasted_control_characters_are_made_visible() -> None:
    async with box() as (pilot, prompt, _):
        await paste(pilot, prompt, "a\x1b[31mb\x07\tक\u200dष")
        assert prompt.text == "a␛[31mb␇\tक\u200dष"


@pytest.mark.slow
async def test_up_in_the_first_row_recalls() -> None:
    async with box() as (pilot, prompt, _):
        prompt.earlier = ["first", "second\nwith two lines", "third"]
        await pilot.press("d", "r", "a", "f", "t", "up")
        assert prompt.text == "third"
        await pilot.press("up")
        assert prompt.text == "second\nwith two lines"
        await pilot.press("up")
        assert prompt.text == "second\nwith two lines", "the cursor moves within the text first"
        await pilot.press("up")
        assert prompt.text == "first"
        await pilot.press("up")
        assert prompt.text == "first"
        await pilot.press("down", "down")
        assert prompt.text == "third"
        await pilot.press("down")
        assert prompt.text == "draft"
        await pilot.press("down")
        assert prompt.text == "draft"


async def test_what_is_changed_in_an_earlier_prompt_is_there_until_something_is_sent() -> None:
    async with box() as (pilot, prompt, _):
        prompt.earlier = ["first", "second"]
        await pilot.press("d", "up", "!", "up", "?", "up", "down", "down")
        assert prompt.text == "d"
        await pilot.press("up")
        assert prompt.text == "second!"
        await pilot.press("up")
        assert prompt.text == "first?"
        assert prompt.earlier == ["first", "second"]
        prompt.load("")
        await pilot.press("up")
        assert prompt.text == "second"


async def test_up_in_a_wrapped_line_moves_first() -> None:
    async with box(30) as (pilot, prompt, _):
        prompt.earlier = ["before"]
        prompt.load("word " * 12)
        await pilot.pause()
        await pilot.press("up")
        assert prompt.text == "word " * 12
        await pilot.press("up", "up")
        assert prompt.text == "before"


@pytest.mark.slow
async def test_recall_keeps_a_folded_draft() -> None:
    async with box() as (pilot, prompt, _):
        prompt.earlier = ["before"]
        await paste(pilot, prompt, "a\n" * 6000)
        await pilot.press("up")
        assert prompt.text == "before"
        await pilot.press("down")
        assert prompt.value == "a\n" * 6000
        assert len(prompt.text) < 40


async def test_a_long_prompt_can_be_loaded_again() -> None:
    async with box() as (pilot, prompt, sent):
        prompt.load("x" * 300_000)
        await pilot.press("enter")
        assert sent == ["x" * 300_000]
        prompt.load("twelve\nlines\n" * 6)
        assert prompt.text == "twelve\nlines\n" * 6, "what was typed is shown, to be changed"


@pytest.mark.slow
@pytest.mark.parametrize("size", [(6, 3), (1, 1), (20, 2)])
async def test_B071_tiny_terminals(size: tuple[int, int]) -> None:
    async with box() as (pilot, _, sent):
        await pilot.press("a")
        await pilot.resize_terminal(*size)
        await pilot.press("b", "ctrl+j", "up", "up", "down")
        await pilot.resize_terminal(60, 24)
        await pilot.pause()
        await pilot.press("enter")
        assert sent == ["ab\n"]


@pytest.mark.slow
async def test_undo_where_the_scroll_bar_goes_with_it() -> None:
    async with box(20, 24) as (pilot, prompt, _):
        for _ in range(3):
            for _ in range(14):
                await pilot.press("ctrl+j")
            prompt.undo()
            prompt.redo()
            prompt.undo()
            await pilot.pause()
        prompt.insert("a\n" * 40)
        await pilot.pause()
        prompt.undo()
        await pilot.pause()
        prompt.redo()
        await pilot.pause()
        assert prompt.text.count("\n") >= 40
