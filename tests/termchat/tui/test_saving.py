"""A store that can take nothing for a while: replies come all the same, and are stored when there is room."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from termchat.store import Store, import_parsed, parse_export
from termchat.tui.background import ClosedError, Worker
from termchat.tui.conversations import saving, store_thread


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "RETRY_SECONDS", 0.05)


async def fill_disk(call: Callable[..., Any], full: bool) -> None:
    """Let the database grow no more, or again."""

    def limit(store: Store) -> None:
        db = store.database._db
        pages = db.execute("PRAGMA page_count").fetchone()[0] if full else 1 << 30
        db.execute(f"PRAGMA max_page_count = {pages}")

    await call(limit)


def stored(path: Path) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT role, text, status FROM message ORDER BY id").fetchall()
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return rows


def said(chat: Any) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in chat.messages]


LONG = "word " * 3000  # more than the free room of the last page


@pytest.mark.parametrize("begun", [False, True])
async def test_a_full_disk_keeps_no_message_from_being_answered(stage: Any, script: Any, begun: bool) -> None:
    async with stage(script(*(["Before."] if begun else []), "One.", "Two.", "Three.", context=32768)) as s:
        chat = await s.ask("before") if begun else s.conversations.new()
        await fill_disk(s.store.call, True)
        await s.ask(LONG, chat)
        assert chat.error == ""
        await s.ask("two", chat)
        expected = [*([("user", "before"), ("assistant", "Before.")] if begun else [])]
        expected += [("user", LONG), ("assistant", "One."), ("user", "two"), ("assistant", "Two.")]
        assert said(chat) == expected
        assert "not stored yet" in s.listener.lasting
        assert "the disk is full" in s.listener.lasting
        assert s.listener.notices == []
        await fill_disk(s.store.call, False)
        await s.until(lambda: s.listener.lasting == "")
        assert said(chat) == expected
        assert chat.id is not None
        assert chat.title == ("before" if begun else chat.title)
        assert chat.title.startswith("before" if begun else "word word")
        await s.ask("three", chat)
        expected += [("user", "three"), ("assistant", "Three.")]
        assert said(chat) == expected
        assert [(role, text) for role, text, _ in stored(s.database)] == expected
        assert {status for *_, status in stored(s.database)} == {"done"}


async def test_a_disk_that_fills_while_a_reply_comes(stage: Any, script: Any) -> None:
    reply = ("international " * 700).strip()
    async with stage(script(reply, context=32768)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "go")
        await s.until(lambda: chat.live and next(iter(chat.live.values())).text)
        await fill_disk(s.store.call, True)
        await s.until(lambda: not chat.busy)
        assert chat.messages[-1].text == reply
        await s.until(lambda: "the disk is full" in s.listener.lasting)
        await fill_disk(s.store.call, False)
        await s.until(lambda: s.listener.lasting == "")
        await s.until(lambda: stored(s.database)[-1] == ("assistant", reply, "done"))


async def test_a_damaged_database_keeps_no_message_from_being_answered(stage: Any, script: Any) -> None:
    async with stage(script("Before.", "One.")) as s:
        chat = await s.ask("before")

        def damage(store: Store) -> None:
            def refuse(*args: Any, **kwargs: Any) -> Any:
                raise sqlite3.DatabaseError("database disk image is malformed")

            store.database._begin = refuse  # type: ignore[method-assign]

        await s.store.call(damage)
        await s.ask("again", chat)
        assert said(chat)[-1] == ("assistant", "One.")
        assert "malformed" in s.listener.lasting


async def test_versions_and_stops_of_what_is_held(stage: Any, script: Any) -> None:
    async with stage(script("One.", "Two.", "Three.", "word " * 2000, step=0.002, context=32768)) as s:
        chat = s.conversations.new()
        await fill_disk(s.store.call, True)
        await s.ask(LONG, chat)
        first = chat.messages[0]
        s.turns.regenerate(chat, chat.messages[-1])
        await s.until(lambda: not chat.busy)
        assert s.turns.edit(chat, first, f"{LONG} edited")
        await s.until(lambda: not chat.busy)
        s.turns.submit(chat, "and on")
        await s.until(lambda: chat.live and next(iter(chat.live.values())).text)
        s.turns.stop(chat)
        await s.until(lambda: not chat.busy)
        branch, tree = said(chat), len(chat.tree)
        assert [text for _, text in branch[:3]] == [f"{LONG} edited", "Three.", "and on"]
        assert tree == 7
        await fill_disk(s.store.call, False)
        await s.until(lambda: s.listener.lasting == "")
        assert said(chat) == branch
        assert len(stored(s.database)) == tree
        assert chat.siblings(chat.messages[0]) == [1, 4]


async def test_what_is_held_at_the_end_is_tried_once_more(stage: Any, script: Any) -> None:
    async with stage(script("One.", context=32768)) as s:
        chat = s.conversations.new()
        await fill_disk(s.store.call, True)
        await s.ask(LONG, chat)
        await fill_disk(s.store.call, False)
        s.conversations.saving.post_held()
    assert [text for _, text, _ in stored(s.database)] == [LONG, "One."]


async def test_what_is_held_at_the_end_is_put_into_a_file(stage: Any, script: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with stage(script("One.", context=32768)) as s:
        chat = s.conversations.new()
        await fill_disk(s.store.call, True)
        await s.ask(LONG, chat)
        s.conversations.saving.post_held()
        await asyncio.to_thread(s.store.close)
        await asyncio.sleep(3 * saving.RETRY_SECONDS)  # nothing is tried any more: the store is closed
        sentence = s.conversations.saving.rescue([tmp_path / "file", tmp_path / "rescued"])
        (file,) = (tmp_path / "rescued").iterdir()
        assert str(file) in sentence
        assert file.stat().st_mode & 0o077 == 0
        with Store(s.database) as store:
            (back,) = import_parsed(store, parse_export(file.read_text()))
            assert [message.text for message in store.tree(back.id)] == [LONG, "One."]
        assert s.conversations.saving.rescue([tmp_path / "file"]).endswith("no file could be written for it")


async def test_in_a_new_conversation_the_error_is_on_the_screen(open_app: Any, script: Any) -> None:
    async with open_app(script("One.", "Two.", context=32768)) as d:
        await fill_disk(d.app.store.call, True)
        await d.say(LONG)
        await d.shows("One.", "not stored yet, but tried again by itself")
        await d.shows(
            *["the", "disk", "is", "full"]
        )  # the line may end anywhere, as the path before it is long
        await fill_disk(d.app.store.call, False)
        await d.until(lambda: "not stored yet" not in d.screen)


async def test_what_cannot_be_sent_at_all_is_told_and_stays(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app(script("One.")) as d:

        async def fail(*args: Any) -> None:
            raise ValueError("it went wrong")

        monkeypatch.setattr(d.app.conversations.saving, "add", fail)
        await d.say("not to be lost")
        await d.shows("it went wrong", "not to be lost")


def test_a_closed_worker_keeps_nobody_waiting() -> None:
    async def wait() -> None:
        worker = Worker("w")
        assert worker.close(10)
        with pytest.raises(ClosedError):
            await worker.call(lambda: 1)
        assert not worker.post(lambda: None)

    asyncio.run(asyncio.wait_for(wait(), 30))


async def test_cancelling_a_reply_when_all_is_closed_does_not_hang(stage: Any, script: Any) -> None:
    async with stage(script("word " * 2000, step=0.01)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "go")
        await s.until(lambda: chat.live and stored(s.database)[-1][1].startswith("word"))
        s.store.close()
        tasks = list(s.turns._tasks)
        for task in tasks:
            task.cancel()
        done, _ = await asyncio.wait(tasks, timeout=30)
        assert len(done) == len(tasks)
    with Store(s.database) as store:
        assert store.tree(chat.id)[-1].status == "interrupted"


async def test_an_exception_while_a_reply_streams_leaves_its_text(stage: Any, script: Any) -> None:
    async with stage(script("word " * 2000, step=0.005)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "go")
        await s.until(lambda: chat.live and len(next(iter(chat.live.values())).text) > 20)
        for task in s.turns._tasks:
            task.cancel()
        await asyncio.wait(list(s.turns._tasks), timeout=30)
    text = stored(s.database)[-1]
    assert text[1].startswith("word word")
    assert text[2] == "interrupted"


def test_a_store_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_thread, "CLOSE_SECONDS", 0.1)
    blocked = threading.Event()
    try:
        kept = store_thread.StoreThread(tmp_path / "t.db", lambda error: None)
        kept.post(lambda store: blocked.wait(60))
        started = time.monotonic()
        kept.close()
        assert time.monotonic() - started < 30
    finally:
        blocked.set()
