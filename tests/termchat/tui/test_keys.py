"""What the keys do: their places, the user's own, and that a fault in a command is never the end."""

from dataclasses import replace
from typing import Any

import pytest

from termchat.tui.command import Command
from termchat.tui.commands import COMMANDS
from termchat.tui.keymap import Keys

LONG = "\n".join(f"line {number}" for number in range(120))


def test_every_command_can_have_a_key() -> None:
    keys = Keys(
        COMMANDS, {command.id: "ctrl+shift+f9" for command in COMMANDS if command.id == "chat.delete"}
    )
    assert keys.warnings == []
    for command in COMMANDS:
        alone = Keys(COMMANDS, {command.id: "ctrl+alt+f9"})
        assert (alone.warnings, alone.of(command.id)) == ([], ["alt+ctrl+f9"])
        assert [binding.action for binding in alone.bindings() if binding.key == "alt+ctrl+f9"] == [
            f"command('{command.id}', 'alt+ctrl+f9')"
        ]


@pytest.mark.parametrize(
    ("given", "keys", "said"),
    [
        ({"chat.delete": "ctrl+x", "chat.fork": "ctrl+x"}, ("chat.fork", ""), "^X is the key of chat.delete"),
        (
            {"chat.delete": "ctrl+t"},
            ("thinking", ""),
            "^T is the key of chat.delete; thinking has no key now",
        ),
        ({"chat.delete": "f1"}, ("help", "alt+h"), "F1 is the key of chat.delete; help has alt+h"),
        ({"chat.delete": "x"}, ("chat.delete", ""), "x is needed for typing"),
        ({"chat.delete": "enter"}, ("chat.delete", ""), "enter is needed for typing"),
        ({"chat.delete": "ctrl+m"}, ("chat.delete", ""), "ctrl+m is needed for typing"),
        ({"chat.delete": "ctrl+h"}, ("chat.delete", ""), "ctrl+h is needed for typing"),
        ({"chat.delete": "ctrl+/"}, ("chat.delete", "^/"), None),  # what terminals send for it
        ({"chat.delete": "ctrl+nothing"}, ("chat.delete", ""), "there is no key 'ctrl+nothing'"),
        ({"chat.delete": "cmd+x"}, ("chat.delete", ""), "there is no key 'cmd+x'"),
        ({"chat.remove": "ctrl+x"}, ("chat.delete", ""), "did you mean chat.rename"),
        ({"chat.fork": "alt+f"}, ("chat.fork", "alt+f"), "for alt+f most terminals send ^→"),
        ({"chat.fork": "alt+g"}, ("chat.fork", "alt+g"), None),
        ({"help": ""}, ("help", ""), None),
        ({"help": "F12, Ctrl+?"}, ("help", "F12 ^question_mark"), None),
        ({"message.copy": "w"}, ("message.copy", "w"), None),
        ({"chat.delete": "ctrl++"}, ("chat.delete", "^plus"), None),
    ],
)
def test_keys_that_cannot_be_are_said(given: dict[str, str], keys: tuple[str, str], said: str | None) -> None:
    made = Keys(COMMANDS, given)
    id, shown = keys
    assert made.all(id) == shown
    if said is None:
        assert made.warnings == []
    else:
        (warning,) = made.warnings
        assert said.partition("did you mean")[0] in warning
    bound = [binding.key for binding in made.bindings() if "message." not in binding.action]
    assert len(bound) == len(set(bound))


async def test_keys_of_the_user_work(open_app: Any, script: Any) -> None:
    config = '[keys]\n"chat.delete" = "ctrl+t"\n"quit" = "f12"\n"chat.new" = "ctrl+q"\n'
    async with open_app(script("One."), config=config, size=(160, 36)) as d:
        await d.shows("^T is the key of chat.delete; thinking has no key now")
        await d.say("one")
        await d.press("ctrl+q")
        await d.until(lambda: not d.conversation.messages)
        await d.press("ctrl+pagedown", "ctrl+t")
        await d.until(lambda: all(chat.title != "one" for chat in d.app.conversations.all))


async def test_page_keys_scroll_the_conversation_from_the_prompt(open_app: Any, script: Any) -> None:
    async with open_app(script(LONG, "More.", step=0.002), size=(100, 30)) as d:
        await d.say("count", wait=False)
        await d.shows("line 40")
        transcript = d.main.view.transcript
        await d.press("pageup")
        await d.until(lambda: not transcript.following)
        await d.shows("new text below · end")
        d.main.prompt.load("x")
        await d.shows("new text below · ^end")
        d.main.prompt.load("")
        await d.settle()
        at = transcript.scroll_offset.y
        await d.press("pageup")
        await d.until(lambda: transcript.scroll_offset.y < at)
        await d.press("ctrl+home")
        await d.until(lambda: transcript.scroll_offset.y == 0)
        await d.press("pagedown")
        await d.until(lambda: transcript.scroll_offset.y > 0)
        await d.press("end")
        await d.until(lambda: transcript.following)
        await d.until(lambda: "new text below" not in d.screen)
        d.main.prompt.load("row\n" * 20)
        await d.pilot.pause()
        row = d.main.prompt.cursor_location[0]
        await d.press("pageup")
        await d.until(lambda: d.main.prompt.cursor_location[0] < row)
        assert transcript.following, "a prompt of many rows has its own pages"
        d.main.prompt.load("next")
        await d.press("ctrl+home", "enter")
        await d.shows("More.")
        assert transcript.following, "what is sent is seen"


async def test_the_esc_that_leaves_something_is_not_the_first_of_two(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", LONG, step=0.002)) as d:
        await d.say("one")
        d.type_ahead("alt+up", "escape", "escape")
        await d.typed()
        assert d.conversation.editing is None
        d.type_ahead("escape")
        await d.typed()
        assert d.conversation.editing is not None
        assert d.main.prompt.text == "one"
        d.type_ahead("escape", *"typed", "escape", "escape")
        await d.typed()
        await d.shows("the prompt has a text: ^C empties it")
        assert d.main.prompt.text == "typed"


async def test_ctrl_c_empties_the_prompt_and_loses_nothing(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), size=(200, 36)) as d:
        text = "two lines\nto be kept"
        for back in ("up", "escape", "ctrl+underscore"):
            d.main.prompt.load(text)
            d.type_ahead("ctrl+c")
            await d.typed()
            assert d.main.prompt.text == ""
            await d.shows("emptied; esc or ↑ brings it back: two lines to be kept (^Q quits)")
            d.type_ahead(back)
            await d.typed()
            assert d.main.prompt.text == text, back
        d.main.prompt.load("")
        d.type_ahead("ctrl+c")
        await d.shows("› ^Q quits")


@pytest.mark.parametrize(
    "typed",
    [
        "hello @~nosuchuser",
        "/model ~nosuchuser/x",
        "/import ~nosuchuser/x",
        "/attach ~nosuchuser/x",
        "/unload ~nosuchuser",
    ],
)
async def test_a_home_that_is_not_there_is_no_fault(open_app: Any, script: Any, typed: str) -> None:
    async with open_app(script("One.", "Two.")) as d:
        d.main.prompt.load(typed)
        await d.press("enter")
        await d.settle()
        assert d.app.fault is None
        d.main.prompt.load("go on")
        await d.press("enter")
        await d.settle()
        assert any(message.text == "go on" for message in d.conversation.messages)


async def test_a_fault_in_a_command_is_a_notice(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(ui: Any, argument: str) -> None:
        raise RuntimeError("broken on purpose")

    command = next(command for command in COMMANDS if command.id == "chat.fork")
    changed: list[Command] = [replace(each, run=broken) if each is command else each for each in COMMANDS]
    monkeypatch.setattr("termchat.tui.screens.main.COMMANDS", tuple(changed))
    async with open_app(script("One."), size=(200, 36)) as d:
        await d.say("/branch", wait=False)
        await d.shows("termchat has a fault: RuntimeError: broken on purpose; the log has the")
        assert "broken on purpose" in caplog.text
        await d.say("one")
        assert d.conversation.messages[-1].text == "One."


async def test_a_store_that_fails_at_the_start_is_a_notice(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from termchat.store import StoreError
    from termchat.tui.conversations.collection import Conversations

    async def load(self: Any) -> None:
        raise StoreError("the list cannot be read")

    monkeypatch.setattr(Conversations, "load", load)
    async with open_app(script("One.")) as d:
        await d.shows("the list cannot be read")
        await d.say("one")
        assert d.conversation.messages[-1].text == "One."


@pytest.mark.parametrize(("key", "action"), [("ctrl+q", "leave"), ("ctrl+z", "pause")])
async def test_leaving_and_the_shell_are_a_key_away_everywhere(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch, key: str, action: str
) -> None:
    done: list[str] = []
    async with open_app(script("One.")) as d:
        monkeypatch.setattr(type(d.app), action, lambda self: done.append(action))
        for opened in (None, "f1", "f2", "f3", "ctrl+o"):
            if opened:
                d.type_ahead(opened)
            d.type_ahead(key)
            await d.typed()
            if opened:
                d.type_ahead("escape")
                await d.typed()
        assert done == [action] * 5


async def test_a_fault_in_what_a_key_does_is_a_notice(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_app(script("One."), size=(200, 36)) as d:

        def broken(self: Any) -> None:
            raise KeyError("broken on purpose")

        monkeypatch.setattr(type(d.main.prompt), "action_cursor_left", broken)
        d.type_ahead("a", "left", "b")
        await d.typed()
        await d.shows("termchat has a fault: KeyError: 'broken on purpose'; the log has the details")
        assert d.main.prompt.text == "ab"
        assert "the action cursor_left failed" in caplog.text
        d.type_ahead("ctrl+u", "f6", "pageup", "pagedown", "escape", "ctrl+p", "pageup", "escape", "c")
        await d.typed()
        assert d.main.prompt.text == "c"
