"""Keys, hints and what is typed: nothing is lost or goes astray, however fast it comes."""

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.events import Paste

from termchat.tui.commands import COMMANDS
from termchat.tui.keymap import Keys
from termchat.tui.screens.help import Manual

LONG = " ".join(str(number) for number in range(60))


async def test_keys_typed_before_a_dialog_is_there_go_to_it(open_app: Any, script: Any) -> None:
    async with open_app(script("The fox is red.")) as d:
        await d.say("fox")
        d.type_ahead("ctrl+o", *"red")
        await d.until(lambda: [field.value for field in d.app.screen.query("Input")] == ["red"])
        assert d.main.prompt.text == ""


@pytest.mark.parametrize(
    ("key", "shown"), [("f3", "KV blocks in use"), ("f2", "temperature"), ("ctrl+o", "Conversations")]
)
async def test_keys_typed_after_closing_a_screen_go_to_the_prompt(
    open_app: Any, script: Any, key: str, shown: str
) -> None:
    async with open_app(script("One.")) as d:
        await d.press(key)
        await d.shows(shown)
        d.type_ahead("escape", "h", "i")
        await d.until(lambda: d.main.prompt.text == "hi")


async def test_keys_typed_before_a_conversation_is_there_go_to_it(open_app: Any, script: Any) -> None:
    async with open_app(script(LONG, "Two.", step=0.01)) as d:
        d.type_ahead(*"one", "enter", "ctrl+n", *"two", "enter")
        await d.until(lambda: [chat.title for chat in d.app.conversations.all] == ["two", "one"])
        assert {chat.messages[0].text for chat in d.app.conversations.all} == {"one", "two"}


async def test_a_new_conversation_without_a_message_does_not_stay(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        await d.say("one")
        first = d.conversation
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation is not first)
        await d.press("ctrl+n", "ctrl+n", "ctrl+pagedown")
        await d.until(lambda: d.conversation is first)
        assert d.app.conversations.all == [first]
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation is not first)
        d.main.prompt.load("half a thought")
        begun = d.conversation
        await d.press("ctrl+n")  # the draft is kept, and there is an empty one beside it
        await d.until(lambda: d.conversation not in (first, begun))
        assert len(d.app.conversations.all) == 3
        await d.main.switch_to(first)
        assert d.app.conversations.all == [begun, first]
        assert begun.draft == "half a thought"


async def test_messages_with_files_stay_in_order(open_app: Any, script: Any, tmp_path: Any) -> None:
    (tmp_path / "note.txt").write_text("content", encoding="utf-8")
    async with open_app(script("One.", "Two.", "Three.")) as d:
        d.app.folder = tmp_path
        for text in ("@note.txt first", "second", "@note.txt third"):
            d.main.prompt.insert(text)
            d.type_ahead("enter")
            await d.until(lambda: d.main.prompt.text == "")
        await d.settle()
        asked = [message.text for message in d.conversation.messages if message.role == "user"]
        assert [text.partition("\n")[0] for text in asked] == ["@note.txt first", "second", "@note.txt third"]


async def test_hints_follow_the_users_keys(open_app: Any, script: Any) -> None:
    keys = {
        "help": "ctrl+y",
        "palette": "f7",
        "model.choose": "f8",
        "chat.new": "ctrl+f",
        "reply.continue": "f10",
        "quit": "ctrl+d",
        "reply.stop": "f12",
        "stats.detail": "f6",
    }
    config = "[keys]\n" + "".join(f'"{id}" = "{key}"\n' for id, key in keys.items())
    async with open_app(script(LONG, step=0.02), config=config) as d:
        await d.shows(
            "^F new conversation   ^Y keys   F7 commands",
            "F8 models",
            "send   ^J new line   ^Y keys",
        )
        await d.say("count", wait=False)
        await d.shows("F12 stop", "^F new chat", "0 1 2 3")
        await d.press("f12")
        await d.settle()
        await d.shows("F10 continues this reply")
        await d.press("ctrl+c")
        await d.shows("^D quits")
        for opened, text in (("f6", "tokens a second"), ("ctrl+y", "Keys and commands")):
            await d.press(opened)
            await d.shows(text)
            await d.press(opened)  # the same key closes it
            await d.until(lambda: len(d.app.screen_stack) == 2)


async def test_B065_the_palette_shows_brackets(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), size=(120, 60)) as d:
        await d.press("ctrl+p")
        for word, usage in (
            ("/model", "/model [NAME]"),
            ("/set", "/set [NAME [VALUE]]"),
            ("/export", "/export [md|json|text] [FILE]"),
        ):
            await d.press(*word)
            await d.shows(usage)
            await d.press(*["backspace"] * len(word))


def test_the_manual_fits_its_screen() -> None:
    manual = Manual(COMMANDS, Keys(COMMANDS, {}))
    for width in (92, 66, 48):
        rows = str(manual.text(width)).split("\n")
        assert max(cell_len(row) for row in rows) <= width
        assert any("/export [md|json|text] [FILE]" in row for row in rows)
    ids = str(manual.text(92)).replace("\n", " ").partition("The ids: ")[2].split(", ")
    assert ids == [command.id for command in COMMANDS], "each can be given a key"


@pytest.mark.parametrize(
    ("line", "count"),
    [("a line with 日本語 and [brackets]\t\n", 5400), ("x" * 200_000, 1), ("\n", 200_000), ("é\r\n", 60_000)],
    ids=["lines", "one line", "empty lines", "carriage returns"],
)
async def test_B069_200_kb_are_folded_and_sent_whole(
    open_app: Any, script: Any, line: str, count: int
) -> None:
    text = line * count
    async with open_app(script(LONG * 9, step=0.05)) as d:
        await d.say("count", wait=False)
        await d.shows("0 1 2 3")
        d.type_ahead(*"see: ")
        d.app._driver.send_message(Paste(text))
        d.type_ahead(*" ok")
        await d.until(lambda: d.main.prompt.text.endswith("ok"))
        assert d.main.prompt.text.startswith("see: [Pasted #1 +")
        assert len(d.main.prompt.text) < 60
        sent = f"see: {text} ok".replace("\r\n", "\n")
        assert d.main.prompt.value == sent
        assert [message.text for message in d.conversation.messages if message.role == "user"] == ["count"]
        await d.press("enter")  # no context holds it, which is said first
        await d.until(lambda: d.conversation.refused)
        assert d.main.prompt.value == sent
        await d.press("enter")
        await d.until(lambda: d.conversation.queue)
        assert d.conversation.queue == [sent]
        await d.press("escape")  # it comes back as it was, folded again
        await d.settle()
        assert d.main.prompt.value == sent
        assert len(d.main.prompt.text) < 60


async def test_B069_a_paste_beside_the_prompt_goes_to_it(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        await d.say("one")
        await d.press("alt+up")
        await d.until(lambda: d.main.view.focused is not None)
        d.app._driver.send_message(Paste("two\nlines"))
        await d.until(lambda: d.main.prompt.text == "two\nlines")
        await d.until(lambda: d.main.prompt.has_focus)


async def test_B071_any_size_while_a_dialog_is_open(open_app: Any, script: Any) -> None:
    async with open_app(script("One.")) as d:
        for key in ("f1", "f2", "f3", "f6", "ctrl+p", "ctrl+o"):
            await d.press(key)
            await d.until(lambda: len(d.app.screen_stack) == 3)
            for size in ((200, 60), (6, 3), (1, 1), (1, 0), (80, 24)):
                await d.pilot.resize_terminal(*size)
            await d.press("escape")
            await d.until(lambda: len(d.app.screen_stack) == 2)
        await d.shows("Type a message")


async def test_B065_brackets_in_default_settings(open_app: Any, script: Any) -> None:
    async with open_app(script("One."), config='[sampling]\nstop = ["[/INST]", "[bold"]\n') as d:
        await d.press("f2")
        await d.shows("[/INST]|[b")  # as much as the field has room for


async def test_what_was_typed_and_not_sent_is_there_in_the_next_run(
    open_app: Any, script: Any, tmp_path: Path
) -> None:
    file = tmp_path / "data" / "termchat.db"
    async with open_app(script(LONG * 9, step=0.05)) as d:
        await d.say("first", wait=False)
        await d.shows("0 1 2 3")
        d.main.prompt.load("queued one")
        await d.press("enter")
        await d.shows("queued  queued one")
        d.main.prompt.load("half [typed] 日本語")
        await d.press("ctrl+n")
        d.main.prompt.load("of a new one")
    assert file.stat().st_mode & 0o077 == 0
    async with open_app(script("One.")) as d:
        await d.shows("│ of a new one")
        assert [chat.title for chat in d.app.conversations.all] == ["New chat", "first"]
        d.main.prompt.load("")
        await d.press("ctrl+pagedown")
        await d.shows("│ queued one", "│ half [typed] 日本語", "continues this reply")
        d.main.prompt.load("")
    async with open_app(script("One."), early=True) as d:
        await d.until(lambda: d.app.conversations.all)
        assert d.main.prompt.text == ""
    async with open_app(script("One."), save=False) as d:
        d.main.prompt.load("not to be kept")
    assert b"not to be kept" not in file.read_bytes()
