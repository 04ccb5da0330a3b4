"""Keys that come at once give what slow typing gives, wherever they go."""

import random
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from textual._callback import invoke
from textual.widgets import Input, TextArea

from termchat.tui.run import SWITCH_SECONDS

LONG = " ".join(str(number) for number in range(400))

ACTIONS = {
    "backspace": "delete_left",
    "delete": "delete_right",
    "ctrl+u": "delete_to_start_of_line",
    "ctrl+w": "delete_word_left",
    "ctrl+k": "delete_to_end_of_line_or_delete_line",
    "left": "cursor_left",
    "right": "cursor_right",
    "home": "cursor_line_start",
    "end": "cursor_line_end",
    "ctrl+left": "cursor_word_left",
    "ctrl+right": "cursor_word_right",
}
CHARACTERS = [*"abcde-.", " ", " ", "é", "日", "\u200c", "e\u0301"[1]]


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as in the program."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    yield
    sys.setswitchinterval(before)


def burst(rng: random.Random) -> list[str]:
    return [
        rng.choice([*ACTIONS, "ctrl+j"]) if rng.random() < 0.4 else rng.choice(CHARACTERS) for _ in range(12)
    ]


async def slowly(field: TextArea, keys: list[str]) -> str:
    """What the keys give if each is done before the next."""
    for key in keys:
        if key in ACTIONS:
            if key == "end" and not field.text:
                continue
            await invoke(getattr(field, f"action_{ACTIONS[key]}"))
        else:
            field.replace("\n" if key == "ctrl+j" else key, *field.selection, maintain_selection_offset=False)
    return field.text


async def test_bursts_of_keys_give_what_slow_typing_gives(
    open_app: Any, script: Any, switching: None
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    async with open_app(script(*[LONG] * 8, step=0.05), size=(100, 30)) as d:
        chats = []
        for number in range(8):
            await d.main.switch_to(d.app.conversations.new())
            d.app.turns.submit(d.conversation, f"chat {number}")
            chats.append(d.conversation)
        await d.until(lambda: all(chat.live for chat in chats))
        for number in range(100):
            keys = burst(rng)
            d.main.prompt.load("")
            expected = await slowly(d.main.prompt, keys)
            d.main.prompt.load("")
            with nullcontext() if number % 10 == 0 else d.app.batch_update():  # drawing takes the time
                d.type_ahead(*keys)
                await d.typed()
            assert d.main.prompt.text == expected, keys
        assert all(len(chat.messages) == 2 for chat in chats), "nothing was sent"


async def test_a_message_that_is_edited_in_one_burst(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "Two.", "Three.", "Four.")) as d:
        await d.say("first")
        d.type_ahead("alt+up", "alt+up", "e", "ctrl+u", *"second", "enter", *"next", "left", "X")
        await d.typed()
        await d.settle()
        assert [message.text for message in d.conversation.messages] == ["second", "Two."]
        assert d.main.prompt.text == "nexXt"
        d.type_ahead("ctrl+u", "ctrl+k", *"three", "enter", *"four", "enter", *"left")
        await d.typed()
        await d.settle()
        asked = [message.text for message in d.conversation.messages if message.role == "user"]
        assert asked == ["second", "three", "four"]
        assert d.main.prompt.text == "left"


async def test_bursts_in_forms_and_lists(open_app: Any, script: Any) -> None:
    async with open_app(script("The fox is red.", "The sea is blue.", "Yes."), size=(120, 50)) as d:
        await d.say("fox")
        fox = d.conversation
        d.type_ahead("ctrl+n", *"sea", "enter")
        await d.typed()
        await d.settle()
        sea = d.conversation
        assert sea is not fox
        d.type_ahead("f2", *"Be kind", "tab", *"0.7", "tab", *"40x", "backspace", "tab", "ctrl+s", *"hi")
        await d.typed()
        assert (sea.system, dict(sea.sampling)) == ("Be kind", {"temperature": 0.7, "top_k": 40})
        assert d.main.prompt.text == "hi"
        d.type_ahead("ctrl+u", "ctrl+o", *"fox", "enter", *"draft")
        await d.typed()
        await d.until(lambda: d.conversation is fox)
        assert (d.main.prompt.text, sea.draft) == ("draft", "")
        d.type_ahead(
            "ctrl+u", *"/title Reynard", "enter", "ctrl+pagedown", "ctrl+pageup", *"x", "backspace", *"y"
        )
        await d.typed()
        assert fox.title == "Reynard"
        assert d.main.prompt.text == "y"
        d.type_ahead("ctrl+b", "ctrl+b", "down", "down", "up", "down", "enter", *"z")
        await d.typed()
        assert d.conversation is d.app.conversations.all[1], "the second row"
        assert d.main.prompt.text == "yz"
        d.type_ahead(
            "f1", "escape", "ctrl+u", *"/title", "enter", "ctrl+u", *"Sea", "backspace", "t", "enter", "!"
        )
        await d.until(lambda: d.conversation.title == "Set")
        await d.typed()
        assert d.main.prompt.text == "!"


async def test_what_is_typed_beside_the_prompt_goes_to_it(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        await d.say("one")
        d.main.view.transcript.focus()
        d.type_ahead(*"this is")
        await d.typed()
        assert d.main.prompt.text == "this is"
        assert d.main.prompt.has_focus
        d.type_ahead("ctrl+u", "ctrl+b", "ctrl+b")
        await d.typed()
        await d.shows("enter open", "letters go to the prompt")
        d.type_ahead(*"yes")
        await d.typed()
        assert d.main.prompt.text == "yes"
        await d.shows("enter send")
        d.type_ahead("ctrl+u", "alt+up", "y")
        await d.typed()
        assert d.app.clipboard == "One.", "at a message letters are its keys"
        assert d.main.prompt.text == ""
        await d.shows("y copy")


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        ("a\u2764\ufe0f", "a"),
        ("a\U0001f468\u200d\U0001f469\u200d\U0001f467", "a"),
        ("a\U0001f44d\U0001f3fd", "a"),
        ("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\U0001f1e9\U0001f1ea"),
        ("می\u200cخ", "می\u200c"),
        ("ae\u0301", "a"),
        ("한", ""),
        ("a\u1112\u1161\u11ab\u1100\u1173\u11af", "a\u1112\u1161\u11ab"),  # as file names of macOS have it
        ("\u1100\u1161\u1102", "\u1100\u1161"),
    ],
)
async def test_joined_characters_are_typed_whole_and_deleted_whole(
    open_app: Any, script: Any, typed: str, left: str
) -> None:
    async with open_app(None, early=True) as d:
        d.type_ahead(*typed)
        await d.until(lambda: d.main.prompt.text == typed)
        d.type_ahead("backspace")
        await d.typed()
        assert d.main.prompt.text == left
        d.type_ahead("ctrl+u", *typed, "home", "delete", "end", "left", "x")
        await d.typed()
        assert "x" in d.main.prompt.text
        d.main.prompt.load("")


async def test_a_paste_goes_where_the_keys_are_and_sends_nothing(open_app: Any, script: Any) -> None:
    from textual.events import Paste

    def paste(text: str) -> None:
        d.app._driver.send_message(Paste(text))

    async with open_app(script("One.")) as d:
        await d.say("one")
        d.type_ahead("ctrl+o")
        paste("two\nlines\n")
        await d.typed()
        assert d.app.screen.query_one(Input).value == "two lines "
        d.type_ahead("escape", "ctrl+b", "ctrl+b")
        paste("in the list\n")
        await d.typed()
        assert d.main.prompt.text == "in the list\n"
        d.main.prompt.load("")
        d.type_ahead(*"/compact", "enter")
        await d.shows("without the oldest messages")
        paste("beside a question")
        await d.typed()
        d.type_ahead("escape")
        await d.typed()
        assert len(d.conversation.messages) == 2
        assert "beside a question" in d.main.prompt.text
