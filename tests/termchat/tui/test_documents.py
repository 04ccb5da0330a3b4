"""Conversations to files and back, compaction, and what was deleted, from the full screen."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from textual.content import Content
from textual.widgets import OptionList

from termchat.tui.conversations.context_full import next_title
from termchat.tui.screens.picker import Item, Picker

LONG = " ".join(str(number) for number in range(60))


async def test_N019_an_import_keeps_its_order_and_has_no_mark(
    open_app: Any, script: Any, tmp_path: Path
) -> None:
    conversations = [
        {"id": name, "title": name, "messages": [{"id": 1, "role": "user", "text": f"in {name}"}]}
        for name in ("one", "two", "three")
    ]
    document = json.dumps({"termchat_export": 1, "conversations": conversations})
    (tmp_path / "with a blank.json").write_bytes(b"\xef\xbb\xbf" + document.encode())
    async with open_app(script("One.")) as d:
        d.app.folder = tmp_path
        await d.say("/import with a blank.json")
        await d.shows("conversations added: 3", "in one")
        assert [chat.title for chat in d.app.conversations.all if chat.id] == ["one", "two", "three"]
        assert "\ufeff" not in d.conversation.messages[0].text


async def test_what_cannot_be_imported_is_one_sentence(open_app: Any, script: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "deep").write_text("[" * 200_000)
    (tmp_path / "number").write_text('{"termchat_export": 1, "conversations": [' + "9" * 100_000 + "]}")
    (tmp_path / "bytes").write_bytes(b"\x00\xff\xfe")
    said = {
        "pipe": "no regular file",
        "folder": "no regular file",
        "deep": "this is no JSON document",
        "number": "this is no JSON document",
        "bytes": "is not a text file",
        "gone": "No such file",
        "~nosuch/x": "No such file",
    }
    async with open_app(script("One."), size=(200, 40)) as d:
        d.app.folder = tmp_path
        for name, sentence in said.items():
            await d.say(f"/import {name}")
            await d.shows(sentence)
            d.main.query_one("Notices").clear()
        assert [chat.id for chat in d.app.conversations.all] == [None]


async def test_an_export_has_a_known_format_and_replaces_nothing_unasked(
    open_app: Any, script: Any, tmp_path: Path
) -> None:
    async with open_app(script("One."), size=(200, 40)) as d:
        d.app.folder = tmp_path
        await d.say("hello")
        for wish in ("pdf", "chat.pdf", "notes"):
            await d.say(f"/export {wish}")
            await d.shows("there is no format", "it is md, json or text")
            d.main.query_one("Notices").clear()
            assert list(tmp_path.glob("*.pdf")) == [] == list(tmp_path.glob("notes*"))
        for wish, name in (
            ('"a b.md"', "a b.md"),
            ("TEXT plain", "plain"),
            ("", "hello.md"),
            ("json", "hello.json"),
        ):
            await d.say(f"/export {wish}".rstrip())
            await d.until(lambda name=name: (tmp_path / name).is_file())
        await d.say("/export hello.md", wait=False)
        await d.shows("The file exists", "replace it")
        await d.press("escape")
        (tmp_path / "into").mkdir()
        await d.say("/export into")
        await d.until(lambda: (tmp_path / "into" / "hello.md").is_file())
        await d.say("/export /proc/nowhere/x.md")
        await d.shows("cannot write /proc/nowhere/x.md")


@pytest.mark.parametrize(
    ("title", "following"),
    [("count", "count (2)"), ("count (2)", "count (3)"), ("(2)", "(2) (2)"), ("x" * 60, "x" * 56 + " (2)")],
)
def test_titles_count_on(title: str, following: str) -> None:
    assert next_title(title) == following


async def compacted(d: Any, answer: int) -> Any:
    old = d.conversation
    await d.say("/compact", wait=False)
    await d.shows("with a summary of what was said")
    await d.press(*["down"] * answer, "enter")
    return old


async def test_a_summary_is_shown_without_the_thinking_and_the_last_message_goes_along(
    open_app: Any, script: Any
) -> None:
    replies = ("First.", LONG, "<think>Let me see.</think>They counted.", "Went on.")
    async with open_app(script(*replies, step=0.005), size=(140, 40)) as d:
        await d.say("first")
        await d.say("continue please", wait=False)
        await d.until(lambda: d.conversation.live)
        await d.press("escape")
        await d.until(lambda: not d.conversation.busy)
        if d.conversation.ending != "unanswered":  # some words had come: take them away
            await d.app.conversations.select(d.conversation, d.conversation.messages[-2].id)
            reply = d.conversation.tree.pop(d.conversation.messages[-1].id)
            d.conversation.leaf_id = reply.parent_id
        old = await compacted(d, 1)
        await d.until(lambda: d.conversation is not old)
        await d.settle()
        assert d.conversation.title == "first (2)"
        assert d.conversation.system == "Summary of the conversation so far:\nThey counted."
        assert [message.text for message in d.conversation.messages] == ["continue please", "Went on."]
        await d.shows("summary of what was said before", "They counted.", "continue please", "Went on.")
        await d.press("alt+up", "alt+up", "alt+up")
        assert d.main.view.focused is None  # the summary is no message


async def test_a_summary_can_be_stopped(open_app: Any, script: Any) -> None:
    async with open_app(script("First.", LONG * 3, "Answer.", step=0.02), size=(140, 40)) as d:
        await d.say("first")
        old = await compacted(d, 1)
        await d.until(lambda: d.conversation.busy)
        await d.say("typed meanwhile", wait=False)
        await d.press("escape")
        await d.shows("the summary was stopped")
        await d.until(lambda: not old.busy)
        assert d.conversation is old
        assert d.main.prompt.value == "typed meanwhile"
        assert len(d.app.conversations.all) == 1


async def test_nothing_said_is_not_summarised(open_app: Any, script: Any) -> None:
    async with open_app(script("x", context=480), size=(140, 40)) as d:
        text = "word " * 470
        d.main.prompt.load(text)
        await d.press("enter")
        await d.shows("nothing is sent")
        await d.say(text)  # who insists is told by the engine
        assert "nothing is sent" not in d.screen
        old = await compacted(d, 1)
        await d.shows("nothing before the last message to be summarised")
        assert d.conversation is old


async def test_deleted_conversations_are_purged_when_asked(
    open_app: Any, script: Any, tmp_path: Path
) -> None:
    async with open_app(script("A xylophone.")) as d:
        await d.say("zebra")
        await d.say("/delete")
        await d.shows("/undelete brings it back")
        await d.say("/purge", wait=False)
        await d.shows("Remove all deleted conversations for good?")
        await d.press("enter")
        await d.shows("deleted conversations removed for good: 1")
        await d.say("/undelete")
        await d.shows("there is no deleted conversation")
    assert b"xylophone" not in (tmp_path / "data" / "termchat.db").read_bytes()


async def test_a_search_waits_for_a_pause_and_keeps_nothing_from_being_saved(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("termchat.tui.screens.picker.PAUSE_SECONDS", 1.0)  # so late no key comes
    async with open_app(script("The fox is red.")) as d:
        await d.say("animals")
        refill = Picker.refill

        async def note(self: Picker, query: str) -> None:
            asked.append(query)
            await refill(self, query)

        monkeypatch.setattr(Picker, "refill", note)
        await d.press("ctrl+o")
        await d.until(lambda: asked == [""])
        d.type_ahead(*"the fox")
        await d.shows("The fox is red.")
        assert asked[-1] == "the fox"
        assert len(asked) < 6, asked
        store = await d.app.store.call(lambda store: store)
        reader = await d.app.store.read(lambda reader: reader)
        assert reader.database is not store.database
        await d.press("escape")
        await d.press("ctrl+o")
        d.type_ahead(*"red", "enter")  # what is typed counts, though the list has not followed yet
        await d.until(lambda: d.main.view.focused is not None)


async def test_a_search_that_ends_while_its_list_is_closed_is_dropped(open_app: Any, script: Any) -> None:
    async def search(query: str) -> list[Item]:
        return [Item(Content("item"), 1)]

    async with open_app(script()) as d:
        picker = Picker("Choose", search)
        d.app.push_screen(picker)
        await d.until(lambda: picker.is_mounted and picker.query(OptionList))
        await picker.query("*").remove()  # as closing begins: the widgets go before their screen
        assert picker.is_attached
        await picker.refill("")
        await picker.refill("typed on")


async def test_what_is_typed_counts_while_a_search_for_it_is_under_way(open_app: Any, script: Any) -> None:
    asked: list[str] = []
    found, chosen = asyncio.Event(), []

    async def search(query: str) -> list[Item]:
        asked.append(query)
        if query:
            await found.wait()
        return [Item(Content(query), query)]

    async with open_app(script()) as d:
        d.app.push_screen(Picker("Choose", search), chosen.append)
        await d.until(lambda: asked)
        await d.press("x")
        await d.until(lambda: asked[-1] == "x")
        d.type_ahead("enter")
        await d.until(lambda: len(asked) == 3)
        found.set()
        await d.until(lambda: chosen == ["x"])


async def test_keys_move_nothing_in_a_list_that_has_no_room(
    open_app: Any, script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def search(query: str) -> list[Item]:
        return [Item(Content(f"item {number}"), number) for number in range(9)]

    async with open_app(script()) as d:
        picker = Picker("Choose", search)
        d.app.push_screen(picker)
        await d.until(lambda: picker.is_mounted and picker.query_one(OptionList).option_count == 9)
        options = picker.query_one(OptionList)
        options.styles.padding = 60  # as on a terminal of a few rows, before anything is laid out
        await d.until(lambda: not options.scrollable_content_region)
        await picker.refill("")
        await d.press("pagedown", "pageup", "down", "up")
        assert not [record.message for record in caplog.records if "failed" in record.message]
