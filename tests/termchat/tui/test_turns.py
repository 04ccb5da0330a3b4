"""The conversation state machine, with the real engine, scheduler and store around a scripted model."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.testing import ScriptedRunner
from termchat.store import Store, StoreError
from termchat.tui.conversations.conversation import Conversation
from termchat.tui.conversations.streaming import LOOK_SECONDS, SAVE_SECONDS

LONG = " ".join(str(number) for number in range(200))


def texts(chat: Conversation) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in chat.messages]


async def test_a_turn_runs_through_its_states_and_is_stored(stage: Callable[..., Any], script: Any) -> None:
    async with stage(script("Hello there.", step=0.02)) as s:
        chat = s.conversations.new()
        assert chat.state == "idle"
        s.turns.submit(chat, "Hi")
        assert chat.state == "queued"
        seen: set[str] = set()
        s.listener.conversations_changed = lambda: seen.add(chat.state)
        await s.until(lambda: not chat.busy)
        assert {"decode", "idle"} <= seen
        assert chat.state == "idle"
        assert texts(chat) == [("user", "Hi"), ("assistant", "Hello there.")]
        assert chat.title == "Hi"
        assert chat.messages[1].metrics["completion_tokens"] > 1
        rows = await s.store.call(lambda store: store.path(chat.id))
        assert rows == chat.messages


async def test_prompts_typed_before_the_engine_is_there_are_answered(stage: Any, script: Any) -> None:
    async with stage(script("One.", "Two."), start=False) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "first")
        s.turns.submit(chat, "second")
        await s.until(lambda: chat.id is not None)
        assert chat.state == "queued"
        assert chat.queue == ["second"]
        stored = await s.store.call(lambda store: store.path(chat.id))
        assert [message.text for message in stored] == ["first"]
        await s.engines.start(None)
        await s.until(lambda: not chat.busy)
        assert [text for _, text in texts(chat)] == ["first", "One.", "second", "Two."]


async def test_enter_while_busy_queues_and_stop_hands_back(stage: Any, script: Any) -> None:
    async with stage(script(LONG, "Next.", step=0.01)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "count")
        await s.until(lambda: any(reply.text for reply in chat.live.values()))
        s.turns.submit(chat, "queued one")
        s.turns.submit(chat, "queued two")
        assert chat.queue == ["queued one", "queued two"]
        assert s.turns.stop(chat) == ["queued one", "queued two"]
        await s.until(lambda: not chat.busy)
        assert chat.state == "interrupted"
        reply = chat.messages[-1]
        assert reply.text
        assert LONG.startswith(reply.text)
        assert reply.status == "interrupted"
        await s.ask("go on", chat)
        assert chat.messages[-1].text == "Next."


async def test_a_text_sent_right_after_a_stop_is_answered(stage: Any, script: Any) -> None:
    async with stage(script("One."), start=False) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "first")
        await s.until(lambda: chat.waiting is not None)
        assert s.turns.stop(chat) == []
        s.turns.submit(chat, "second")
        await s.engines.start(None)
        await s.until(lambda: not chat.busy)
        assert texts(chat)[-2:] == [("user", "second"), ("assistant", "One.")]


async def test_conversations_stream_at_once_and_ids_match_the_snapshot(stage: Any, script: Any) -> None:
    async with stage(script(LONG[:400], LONG[:200], step=0.01)) as s:
        one, two = s.conversations.new(), None
        s.turns.submit(one, "a")
        await s.until(lambda: one.live)  # the engine has been asked: the first script is its reply
        two = s.conversations.new()
        assert two is not one
        await s.conversations.show(two)
        s.turns.submit(two, "b")
        await s.until(lambda: one.state == two.state == "decode")
        ids = {reply.stream.id for chat in (one, two) for reply in chat.live.values()}
        await s.until(lambda: {row.id for row in s.engines.default.snapshot().conversations} == ids)
        await s.until(lambda: not two.busy)
        assert two.messages[-1].text == LONG[:200]
        assert not two.unread
        await s.until(lambda: not one.busy)
        assert one.unread
        assert one.messages[-1].text == LONG[:400]


async def test_B087_regenerate_makes_a_sibling_and_cancelling_keeps_the_old_reply(
    stage: Any, script: Any
) -> None:
    async with stage(script("First.", "Second.", LONG, step=0.005)) as s:
        chat = await s.ask("say")
        first = chat.messages[-1]
        s.turns.regenerate(chat, first)
        await s.until(lambda: not chat.busy)
        assert texts(chat) == [("user", "say"), ("assistant", "Second.")]
        assert chat.siblings(first) == [first.id, chat.messages[-1].id]
        await s.conversations.select(chat, first.id)
        assert chat.messages[-1] == first
        s.turns.regenerate(chat, first)
        s.turns.stop(chat)
        await s.until(lambda: not chat.busy)
        assert chat.tree[first.id] == first
        stored = await s.store.call(lambda store: store.tree(chat.id))
        assert {message.id: message for message in stored} == chat.tree
        shown = await s.store.call(lambda store: store.path(chat.id))
        assert shown == chat.messages


async def test_edit_makes_a_branch_and_keeps_the_old_one(stage: Any, script: Any) -> None:
    async with stage(script("A.", "B.", "C.")) as s:
        chat = await s.ask("one")
        await s.ask("two", chat)
        question = chat.messages[0]
        s.turns.edit(chat, question, "uno")
        await s.until(lambda: not chat.busy)
        assert texts(chat) == [("user", "uno"), ("assistant", "C.")]
        await s.conversations.select(chat, question.id)
        assert [text for _, text in texts(chat)] == ["one", "A.", "two", "B."]


async def test_several_answers_at_once_share_the_prompt(stage: Any, script: Any) -> None:
    async with stage(script("A.", "B1.", "B2.", "B3.", step=0.005)) as s:
        chat = await s.ask("say")
        s.turns.regenerate(chat, chat.messages[0], count=3)
        await s.until(lambda: len(chat.live) == 3)
        assert chat.leaf_id == min(chat.live)
        await s.until(lambda: not chat.busy)
        ids = chat.siblings(chat.messages[-1])
        assert [chat.tree[id].text for id in ids] == ["A.", "B1.", "B2.", "B3."]


async def test_an_interrupted_reply_goes_on_where_it_stopped(stage: Any, script: Any) -> None:
    async with stage(script(LONG, " and so on", step=0.01)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "count")
        await s.until(lambda: any(len(reply.text) > 10 for reply in chat.live.values()))
        s.turns.stop(chat)
        await s.until(lambda: not chat.busy)
        part = chat.messages[-1]
        s.turns.resume(chat, part)
        await s.until(lambda: not chat.busy)
        whole = chat.messages[-1]
        assert whole.id == part.id
        assert whole.text == part.text + " and so on"
        assert whole.status == "done"


async def test_thinking_is_kept_apart(stage: Any, script: Any) -> None:
    async with stage(script("<think>well, hm</think>\n\nYes.")) as s:
        chat = await s.ask("?")
        assert (chat.messages[-1].thinking, chat.messages[-1].text) == ("well, hm", "Yes.")


async def test_a_prompt_too_long_is_an_error_with_the_numbers_and_the_next_turn_works(
    stage: Any, script: Any
) -> None:
    async with stage(script("unused", "Fine.", context=128)) as s:
        chat = await s.ask("word " * 300)
        assert chat.state == "error"
        assert chat.full
        assert "128" in chat.error
        assert [message.role for message in chat.messages] == ["user"]
        other = s.conversations.new()
        await s.ask("short", other)
        assert other.messages[-1].role == "assistant"


async def test_fork_rename_delete_undelete(stage: Any, script: Any) -> None:
    async with stage(script("A.")) as s:
        chat = await s.ask("one")
        copy = await s.conversations.fork(chat, chat.messages[0].id)
        await s.conversations.read(copy)
        assert texts(copy) == [("user", "one")]
        await s.conversations.rename(copy, "[red]Copy[/red]")
        assert copy.title == "[red]Copy[/red]"
        await s.conversations.delete(copy)
        assert copy not in s.conversations.all
        back = await s.conversations.undelete()
        assert back.title == "[red]Copy[/red]"


async def test_an_engine_that_cannot_be_loaded_says_why(stage: Any, tmp_path: Path, script: Any) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    async with stage(None, start=False) as s:
        await s.engines.start(str(broken))
        chat = s.conversations.new()
        s.turns.submit(chat, "hello")
        await s.until(lambda: not chat.busy)
        assert s.engines.default.state == "failed"
        assert chat.state == "error"
        assert "broken.gguf" in chat.error
        assert "choose another model" in chat.error
        assert texts(chat) == [("user", "hello")]


async def test_a_store_that_cannot_be_used_does_not_stop_the_chat(
    stage: Any, script: Any, tmp_path: Path
) -> None:
    (tmp_path / "termchat.db").write_bytes(b"not a database, but long enough to look like one" * 40)
    async with stage(script("A.")) as s:
        assert s.store.notice is not None
        chat = await s.ask("one")
        assert chat.messages[-1].text == "A."


async def test_a_locked_database_does_not_hold_up_the_stream(stage: Any, script: Any) -> None:
    async with stage(script(LONG[:200], step=0.005)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "go")
        await s.until(lambda: any(reply.text for reply in chat.live.values()))
        other = sqlite3.connect(s.database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        length = sum(len(text) for text in s.listener.grown)
        await s.until(lambda: sum(len(text) for text in s.listener.grown) > length)
        other.execute("ROLLBACK")
        other.close()
        await s.until(lambda: not chat.busy)
        assert chat.messages[-1].text == LONG[:200]


async def test_stop_before_the_first_word_leaves_the_question(stage: Any, script: Any) -> None:
    async with stage(script(LONG, step=0.05)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "go")
        await s.until(lambda: bool(chat.live))
        s.turns.stop(chat)
        await s.until(lambda: not chat.busy)
        assert texts(chat)[0] == ("user", "go")
        assert all(text for _, text in texts(chat))


def test_B083_kill_9_keeps_the_partial_reply(default_model: Path, tmp_path: Path) -> None:
    """A process is killed in mid-reply; the next start finds the text, marked as interrupted."""
    program = textwrap.dedent(
        """
        import asyncio, os, signal, sys
        from pathlib import Path
        from engine import EngineConfig
        from engine.testing import ScriptedModel
        from engine.tokenization import load_tokenizer
        from termchat.config import Config
        from termchat.registry import Registry
        from termchat.tui.conversations.collection import Conversations
        from termchat.tui.engines.pool import EnginePool
        from termchat.tui.conversations.store_thread import StoreThread
        from termchat.tui.engines.loader import Loader
        from termchat.tui.conversations.streaming import Streaming
        from termchat.tui.conversations.turns import Turns

        folder, model = Path(sys.argv[1]), sys.argv[2]
        text = " ".join(map(str, range(500)))
        script = ScriptedModel([load_tokenizer(model).encode(text)], model, step_seconds=0.01)

        class Nobody:
            def __getattr__(self, name): return lambda *args, **more: None

        async def main():
            loader = Loader(Config.load(folder / "c"), lambda: Registry({}, model, folder),
                            engine_config=lambda m: EngineConfig(model=script))
            engines = EnginePool(loader, lambda: None)
            store = StoreThread(folder / "termchat.db", print)
            await store.open()
            conversations = Conversations(store, Nobody())
            turns = Turns(engines, conversations, store, Streaming(conversations, store, Nobody()), Nobody())
            await engines.start(None)
            conversation = conversations.new()
            turns.submit(conversation, "count")
            while not conversation.live:
                await asyncio.sleep(0.01)
            (reply,) = conversation.live.values()
            while len((await store.call(lambda store: store.message(reply.message_id))).text) <= 40:
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(default_model)],
        env={**os.environ},
        timeout=300,
        check=False,
    )
    assert done.returncode == -9
    with Store(tmp_path / "termchat.db") as store:
        question, reply = store.path(store.list_conversations()[0].id)
    assert question.text == "count"
    assert reply.status == "interrupted"
    assert len(reply.text) > 40
    assert LONG.startswith(reply.text) or reply.text.startswith(LONG)


async def test_B083_a_model_error_in_mid_stream_keeps_the_text_and_the_next_turn_works(
    stage: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, broken = ScriptedRunner.launch, False

    def breaking(*args: Any, **named: Any) -> Any:
        if broken:
            raise RuntimeError("the [device] is gone")
        return launch(*args, **named)

    monkeypatch.setattr(ScriptedRunner, "launch", breaking)
    async with stage(script(LONG, "Other.", step=0.003)) as s:
        chat, other = s.conversations.new(), None
        s.turns.submit(chat, "count")
        await s.until(lambda: any(reply.tokens > 50 for reply in chat.live.values()))
        other = s.conversations.new()
        s.turns.submit(other, "before the first word")
        await s.until(lambda: other.live)
        shown = next(iter(chat.live.values())).text
        broken = True
        await s.until(lambda: not chat.busy and not other.busy)
        assert "the [device] is gone" in chat.error
        question, reply = chat.messages
        assert (question.text, question.status, reply.status) == ("count", "done", "error")
        assert len(shown) > 20
        assert reply.text.startswith(shown)
        assert LONG.startswith(reply.text)
        with Store(s.database) as store:
            assert [(message.text, message.status) for message in store.path(chat.id)] == [
                ("count", "done"),
                (reply.text, "error"),
            ]
            assert store.path(other.id)[0].text == "before the first word"
            assert store.database.query("PRAGMA integrity_check")[0][0] == "ok"
        broken = False
        await s.until(lambda: s.engines.default.state == "unloaded")
        s.turns.regenerate(chat, reply)  # loads the model again
        await s.until(lambda: not chat.busy)
        assert chat.error == ""
        assert (chat.messages[-1].text, chat.messages[-1].status) == (LONG, "done")
        assert len(chat.siblings(chat.messages[-1])) == 2


def test_B083_the_way_of_a_word_to_the_disk_takes_less_than_half_a_second() -> None:
    """It waits to be taken over, then for more to be saved with it; the rest is for the store's thread."""
    assert LOOK_SECONDS + SAVE_SECONDS <= 0.4


async def two_that_stream(s: Any) -> list[Conversation]:
    """Two conversations whose replies have begun."""
    chats = [Conversation(s.conversations._new, tree={}) for _ in range(2)]
    for chat in chats:
        s.conversations.all.append(chat)
        s.turns.submit(chat, "say it")
        await s.until(lambda chat=chat: chat.live or not chat.busy)
    return chats


async def test_a_fault_in_one_reply_ends_no_other(stage: Any, script: Any) -> None:
    said = "word " * 60
    async with stage(script(said, said, step=0.01)) as s:
        broken: list[Conversation] = []

        def fail(chat: Conversation, reply: Any, answer: str, thinking: str) -> None:
            if len(reply.text) > 40:
                broken[:] = broken or [chat]
                if chat in broken:
                    raise RuntimeError("broken")

        s.listener.reply_grew = fail
        chats = await two_that_stream(s)
        await s.until(lambda: not any(chat.busy for chat in chats))
        for chat in chats:
            if chat in broken:
                assert "broken" in chat.error
                assert len(texts(chat)[1][1]) > 40, "what had come is kept"
            else:
                assert chat.error == ""
                assert texts(chat)[1] == ("assistant", said)
        assert len(broken) == 1


async def test_a_reply_that_cannot_be_saved_holds_up_no_other(
    stage: Any, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(script(LONG, LONG, step=0.02)) as s:
        chats = await two_that_stream(s)
        (broken,), (other,) = (chat.live.values() for chat in chats)

        def fail() -> None:
            raise StoreError("the disk is full")

        monkeypatch.setattr(broken.writer, "tick", fail)
        while not (await s.store.call(lambda store: store.message(other.message_id))).text:
            assert chats[1].live, "it is saved while it streams"
            await asyncio.sleep(0.01)
        await s.until(lambda: "the disk is full" in s.listener.notices)
        for chat in chats:
            s.turns.stop(chat)
        await s.until(lambda: not any(chat.busy for chat in chats))
        for chat in chats:
            assert texts(chat)[1][1]
            assert LONG.startswith(texts(chat)[1][1])


async def test_errors_of_the_store_are_told(stage: Any, script: Any) -> None:
    async with stage(script("A.")) as s:
        chat = s.conversations.new()
        with pytest.raises(StoreError):
            await s.conversations.fork(chat)


async def test_B087_two_windows_drop_nothing_of_each_other(stage: Any, script: Any) -> None:
    async with stage(script("One.", "Two.")) as s:
        chat = await s.ask("first")
        with Store(s.database) as other:  # another window goes on with the same conversation
            theirs = other.add_message(chat.id, "user", "from elsewhere")
        await s.ask("second", chat)
        assert texts(chat) == [
            ("user", "first"),
            ("assistant", "One."),
            ("user", "second"),
            ("assistant", "Two."),
        ]
        assert chat.siblings(chat.messages[2]) == [theirs.id, chat.messages[2].id]
        await s.conversations.select(chat, theirs.id)
        assert texts(chat)[-1] == ("user", "from elsewhere")


async def test_B085_a_newer_database_is_left_as_it_is_and_the_chat_works(
    stage: Any, script: Any, tmp_path: Path
) -> None:
    file = tmp_path / "termchat.db"
    Store(file).close()
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()
    before = file.read_bytes()
    async with stage(script("A.")) as s:
        assert s.store.notice is not None
        chat = await s.ask("one")
        assert chat.messages[-1].text == "A."
    assert file.read_bytes() == before


async def test_a_conversation_that_is_deleted_while_it_answers_is_no_error(stage: Any, script: Any) -> None:
    async with stage(script("word " * 500, "Two.", step=0.005)) as s:
        chat = s.conversations.new()
        s.turns.submit(chat, "tell")
        await s.until(lambda: any(reply.text for reply in chat.live.values()))
        await s.conversations.show(s.conversations.new())
        s.turns.stop(chat)
        await s.conversations.delete(chat)
        await s.until(lambda: not chat.busy)
        await s.store.call(lambda store: None)
        assert s.listener.notices == []
        assert chat not in s.conversations.all
        back = await s.conversations.undelete()
        await s.conversations.read(back)
        assert (back.gone, back.messages[0].text) == (False, "tell")
