"""What was typed and not sent: kept while it is typed, sent once, handed on when a window closes."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from termchat.store import Store, save_draft
from termchat.tui.conversations import turns
from termchat.tui.conversations.collection import Conversations
from termchat.tui.conversations.store_thread import StoreThread
from termchat.tui.screens import main

LONG = " ".join(str(number) for number in range(60))


def unsent(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute("SELECT text FROM draft ORDER BY text")]


async def test_N013_what_is_typed_is_in_the_store_a_moment_later(
    open_app: Any, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "TICKS_A_LOOK", 1)
    file = tmp_path / "data" / "termchat.db"
    async with open_app(script("One.", LONG, step=0.05)) as d:
        await d.say("first")
        d.type_ahead(*"half")
        await d.until(lambda: unsent(file) == ["half"])
        await d.press("ctrl+n")
        await d.until(lambda: d.conversation.id is None)
        d.type_ahead(*"new")
        await d.until(lambda: unsent(file) == ["half", "new"])
        await d.press("enter")  # sent, and so forgotten, in one step
        await d.until(lambda: d.conversation.live)
        assert unsent(file) == ["half"]
        await d.say("queued", wait=False)
        await d.say("two", wait=False)
        d.type_ahead(*"unfinished")
        await d.until(lambda: "queued\n\ntwo\n\nunfinished" in unsent(file))
        with Store(file) as other:  # another window, which takes nothing of what is being typed here
            assert other.list_conversations()
        assert unsent(file) == ["half", "queued\n\ntwo\n\nunfinished"]
        # As after a kill, the next window has it all.
        kept = StoreThread(file, lambda error: None)
        for name in (file.parent / "termchat.db-writers").iterdir():
            name.unlink()
        chats = Conversations(kept, d.main)
        await chats.load()
        found = next(chat for chat in chats.all if chat.title == "new")
        assert await chats.show(found) == "queued\n\ntwo\n\nunfinished"
        await asyncio.to_thread(kept.close)


async def test_N013_a_message_and_its_draft_change_in_one_transaction(stage: Any, script: Any) -> None:
    async with stage(script("One.", "Two.")) as s:
        chat = await s.ask("first")
        chat.draft = "second"
        s.conversations.unsent.keep(s.conversations.all)
        await s.until(lambda: chat.kept == "second")

        def fail(*args: Any, **kwargs: Any) -> None:
            raise ValueError("it goes wrong half-way")

        store: Store = await s.store.call(lambda store: store)
        store.conversation, whole = fail, store.conversation  # type: ignore[method-assign, assignment]
        chat.draft = ""
        s.turns.submit(chat, "second")
        await s.until(lambda: not chat.busy)
        assert unsent(s.database) == ["second"]
        assert chat.unsent == "second"
        store.conversation = whole  # type: ignore[method-assign]


async def test_N013_windows_that_close_hand_on_what_they_hold(
    stage: Any, script: Any, tmp_path: Path
) -> None:
    async with stage(script("One.")) as s:
        chat = await s.ask("first")
        with Store(s.database) as other:
            save_draft(other, "k1", chat.id, "typed in the other window")
            save_draft(other, "k2", None, "of a new one")
            assert await s.conversations.show(chat) == ""
        assert await s.conversations.show(chat) == "typed in the other window"
        fresh = Conversations(s.store, s.listener)
        await fresh.load()
        assert [(each.id, each.draft) for each in fresh.all] == [(None, "of a new one"), (chat.id, "")]
        fresh.all[0].draft = ""
        fresh.unsent.keep(fresh.all)
        await s.until(lambda: unsent(s.database) == ["typed in the other window"])


async def test_a_draft_of_a_deleted_conversation_comes_back_with_it(stage: Any, script: Any) -> None:
    async with stage(script(LONG, step=0.05)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "first")
        await s.until(lambda: chat.live)
        s.turns.submit(chat, "queued")
        chat.draft = "typed"
        await s.conversations.delete(chat)
        s.turns.stop(chat)
        await s.until(lambda: not chat.busy)
        again = await s.conversations.undelete()
        assert again.id == chat.id
        assert await s.conversations.show(again) == "queued\n\ntyped"


def test_N013_what_is_typed_waits_less_than_two_seconds_for_the_store() -> None:
    assert main.TICK_SECONDS * main.TICKS_A_LOOK <= 1


async def test_an_edited_message_is_not_lost_while_a_reply_is_made(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", LONG, "Three.", step=0.005)) as d:
        await d.say("first")
        await d.say("second", wait=False)
        await d.until(lambda: d.conversation.live)
        d.main.drafts.edit(d.conversation.messages[0])
        d.main.prompt.load("first, edited")
        await d.press("enter")
        await d.shows("a reply is being made: esc stops it")
        assert d.main.prompt.text == "first, edited"
        await d.until(lambda: not d.conversation.busy)
        await d.press("enter")
        expected = ["first, edited", "Three."]
        await d.until(lambda: [message.text for message in d.conversation.messages] == expected)


async def test_a_message_waits_for_the_reply_of_another_process(
    stage: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "ELSEWHERE_SECONDS", 0.02)
    async with stage(script("One.", "Two.")) as s:
        chat = await s.ask("first")
        with Store(s.database) as other:
            begun = other.begin_turn(chat.id, "from elsewhere")
            begun.reply.append("half of")
            await s.conversations.show(chat)
            assert chat.messages[-1].text == "half of"
            s.turns.submit(chat, "mine")
            await s.until(lambda: chat.busy_elsewhere)
            assert chat.unsent == "mine"
            begun.reply.append(" the answer")
            begun.reply.finish()
        await s.until(lambda: not chat.busy)
        assert [message.text for message in chat.messages] == [
            *("first", "One.", "from elsewhere", "half of the answer", "mine", "Two.")
        ]
