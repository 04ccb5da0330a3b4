"""What is typed and not sent: on its way, taken back, put aside for an edit; `//` begins a message."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from termchat.slash import as_typed, is_command, message_of
from termchat.tui.commands import sending


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "notes.txt").write_text("xyzzy", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Files are read once this is set."""
    turns, real = threading.Event(), sending.gather

    def slow(*arguments: Any) -> Any:
        turns.wait()
        return real(*arguments)

    monkeypatch.setattr(sending, "gather", slow)
    yield turns
    turns.set()


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_an_edit_whose_files_are_read_is_taken_back_as_an_edit(
    open_app: Any, script: Any, files: Path, disk: threading.Event, key: str
) -> None:
    async with open_app(script("One.", "Two.", "Three.")) as d:
        await d.say("first")
        await d.press(*"a draft", "alt+up", "alt+up", "e", *" @notes.txt", "enter")
        assert d.main.prompt.text == "a draft"
        assert "first @notes.txt" in d.conversation.unsent, "a crash loses neither"
        await d.press(key)
        assert (d.main.prompt.text, d.conversation.preparing) == ("first @notes.txt", [])
        assert d.conversation.editing is not None
        disk.set()
        await d.settle()
        assert [each.text for each in d.conversation.messages] == ["first", "One."]
        await d.press("enter")
        await d.settle()
        assert "xyzzy" in d.conversation.messages[0].text
        await d.shows("‹2/2›")
        assert d.main.prompt.text == "a draft"


async def test_a_message_whose_files_are_read_is_taken_back(
    open_app: Any, script: Any, files: Path, disk: threading.Event
) -> None:
    async with open_app(script("One.")) as d:
        await d.press(*"//see @notes.txt", "enter", *"then", "enter", "escape")
        assert d.main.prompt.text == "//see @notes.txt\n\nthen"
        disk.set()
        await d.settle()
        assert not d.conversation.messages
        await d.press("enter")  # that it was typed is known still: nothing is asked
        await d.settle()
        assert d.conversation.messages[0].text.startswith("//see @notes.txt\n\nthen")
        assert "xyzzy" in d.conversation.messages[0].text


async def test_messages_that_come_back_are_no_part_of_an_edit(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "one two three four " * 30, step=0.05)) as d:
        await d.say("first")
        await d.say("second", wait=False)
        await d.until(lambda: d.conversation.live)
        await d.say("queued", wait=False)
        await d.press("alt+up", "alt+up", "alt+up", "alt+up", "e")
        await d.until(lambda: d.main.prompt.text == "first")
        await d.press("ctrl+c")
        await d.until(lambda: not d.conversation.busy)
        assert d.main.prompt.text == "first"
        await d.press("escape")
        assert d.main.prompt.text == "queued"


async def test_an_edit_that_is_stopped_before_it_begins_is_no_fault(stage: Any, script: Any) -> None:
    async with stage(script("One.", "Two.")) as s:
        chat = await s.ask("first")
        assert s.turns.edit(chat, chat.messages[0], "second")
        assert s.turns.stop(chat) == ["second"]
        await s.until(lambda: not chat.busy)
        assert chat.error == ""
        assert [each.text for each in chat.messages] == ["first", "One."]


@pytest.mark.parametrize("message", ["/quit", "/quit now", "a", "/etc/hosts", "/* x */", "// why"])
def test_a_message_that_is_typed_again_is_the_same_message(message: str) -> None:
    typed = as_typed(message)
    assert message_of(typed) == message
    assert not is_command(typed)


async def test_a_message_that_begins_as_a_command_comes_back_as_a_message(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "one two three four " * 30, step=0.05)) as d:
        await d.say("//quit")
        await d.press("alt+up", "alt+up", "e")
        assert d.main.prompt.text == "//quit"
        await d.press("escape", "escape")
        await d.say("more", wait=False)
        await d.until(lambda: d.conversation.live)
        await d.say("//delete", wait=False)
        await d.until(lambda: d.conversation.queue == ["/delete"])
        assert d.conversation.unsent == "//delete"
        await d.press("escape")
        await d.until(lambda: d.main.prompt.text == "//delete")
