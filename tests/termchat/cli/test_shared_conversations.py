"""Several processes that go on with one conversation: each has seen what stands above its reply."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from termchat.cli.recording import Recording
from termchat.messages import Outcome, outcome_of, prompt_of, said_now
from termchat.store import ConversationBusyError, Store, StoreError

DONE = Outcome("done", "stop", {})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.db"


async def turn(path, number, pieces=5, name="team"):
    """What one script does; what its model has seen."""
    notes = []
    with Recording(Store(path), notes.append, name=name) as recording:
        said = await recording.begin(f"question {number}", model="m")
        for piece in range(pieces):
            recording.append(f"{number}.{piece} ", "")
            await asyncio.sleep(0.01)
        recording.finish(DONE)
    assert not [note for note in notes if "waiting" not in note], notes
    return [message.text for message in said.branch]


@pytest.mark.parametrize("begun", [False, True])
def test_N030_several_at_once_in_one_conversation(path, begun):
    """A new conversation, and one that has turns already."""
    if begun:
        asyncio.run(turn(path, "first"))

    async def all_at_once():
        return await asyncio.gather(*(turn(path, number) for number in range(4)))

    seen = asyncio.run(all_at_once())
    with Store(path) as store:
        branch = store.path("team")
        assert len(branch) == len(store.tree("team")) == 8 + 2 * begun
        for place, message in enumerate(branch):
            assert message.role == ("user", "assistant")[place % 2]
            assert message.status == "done"
        for number, above in enumerate(seen):
            place = next(i for i, each in enumerate(branch) if each.text == f"question {number}")
            assert [message.text for message in branch[:place]] == above
            assert branch[place + 1].text == "".join(f"{number}.{piece} " for piece in range(5))


@pytest.mark.slow
def test_N030_real_processes(environment_of_its_own, home):
    """Usage says of each reply as many prompt tokens as the branch above it has."""
    script = [sys.executable, "-m", "termchat", "--cid", "team", "--json", "-t", "0", "-n", "8"]

    def ask(number):
        return subprocess.run(
            [*script, f"My number is {number}"],
            env=environment_of_its_own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
            check=False,
        )

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(ask, range(2)))
    assert [process.returncode for process in done] == [0, 0], [process.stderr for process in done]
    replies = sorted((json.loads(process.stdout) for process in done), key=lambda reply: int(reply["id"]))
    counts = [reply["usage"]["prompt_tokens"] for reply in replies]
    assert counts == sorted(counts)
    assert len(set(counts)) == 2, "each has seen one turn more than the one before"
    with Store(home / "data" / "termchat" / "termchat.db") as store:
        branch = store.path("team")
    assert [message.role for message in branch] == ["user", "assistant"] * 2
    assert [str(message.id) for message in branch[1::2]] == [reply["id"] for reply in replies]


@pytest.fixture
def environment_of_its_own(home, linked_model):
    return {**os.environ, "HOME": str(home)}


def test_N030_nothing_hangs_below_the_half_reply_of_another_process(path):
    """As while the full screen streams: a bounded wait, then one sentence; nothing has been stored."""
    with Store(path) as screen, Store(path) as script:
        first = screen.begin_turn("team", "Hello")
        first.reply.append("half a re")
        with pytest.raises(ConversationBusyError, match=r"still answering in .* 'team'; try again"):
            script.begin_turn("team", "And me?")
        with pytest.raises(ConversationBusyError):
            script.add_message("team", "user", "And me?")
        assert len(script.tree("team")) == 2
        first.reply.append("ply")
        first.reply.finish()
        second = script.begin_turn("team", "And me?")
        assert [message.text for message in second.branch] == ["Hello", "half a reply"]
        assert second.question.parent_id == first.reply.message_id


def test_N030_a_dead_process_keeps_nobody_waiting(path):
    store = Store(path)
    store.begin_turn("team", "Hello").reply.append("half a re")
    store._writer.close()  # as the system does for a process that was killed
    with Store(path) as other:
        turn = other.begin_turn("team", "And now?")
        assert [(each.text, each.status) for each in turn.branch] == [
            ("Hello", "done"),
            ("half a re", "interrupted"),
        ]
    store.database.close()


def test_N030_who_waits_says_so_and_comes_to_an_end(path, monkeypatch):
    monkeypatch.setattr("termchat.cli.recording.BUSY_SECONDS", 0.3)
    monkeypatch.setattr("termchat.cli.recording.NOTE_SECONDS", 0.0)
    notes = []
    with Store(path) as other, Recording(Store(path), notes.append, name="team") as recording:
        other.begin_turn("team", "Hello")
        with pytest.raises(ConversationBusyError):
            asyncio.run(recording.begin("Hi", model="m"))
        assert notes == ["waiting: another termchat is still answering in the conversation 'team'"]
        assert len(other.tree("team")) == 2


def failing(recording, monkeypatch, *names):
    """From now on these calls of the store find a full disk."""

    def full(*_, **__):
        raise StoreError("the disk is full")

    for name in names:
        monkeypatch.setattr(f"termchat.store.{name}", full)


def test_what_a_full_disk_refused_is_stored_when_there_is_room(path, monkeypatch):
    """Over several turns of a chat: in order, complete, with one note for the failure and one for its end."""
    notes = []

    async def chat():
        with Recording(Store(path), notes.append) as recording:
            with monkeypatch.context() as patch:
                failing(recording, patch, "Store.begin_turn")
                for number in range(2):
                    said = await recording.begin(f"question {number}", model="m", system="Be brief.")
                    assert len(said.branch) == 2 * number
                    assert said.system == "Be brief."
                    recording.append(f"answer {number}", "")
                    recording.finish(DONE)
                assert recording.conversation_id is None
            said = await recording.begin("question 2", model="m")
            assert [message.text for message in said.branch][-1] == "answer 1"
            recording.append("answer 2", "")
            recording.finish(DONE)
            return recording.conversation_id

    name = asyncio.run(chat())
    assert notes == [
        "the conversation is not saved: the disk is full",
        "the conversation is saved after all",
    ]
    with Store(path) as store:
        assert store.conversation(name).system == "Be brief."
        assert [message.text for message in store.path(name)] == [
            f"{what} {number}" for number in range(3) for what in ("question", "answer")
        ]


def test_a_reply_whose_end_was_refused_is_stored_at_the_programs_end(path, monkeypatch):
    notes = []

    async def chat():
        with Recording(Store(path), notes.append, name="x") as recording:
            await recording.begin("Hi", model="m")
            with monkeypatch.context() as patch:
                failing(recording, patch, "ReplyWriter.finish")
                recording.append("all of it", "")
                recording.finish(DONE)

    asyncio.run(chat())
    with Store(path) as store:
        assert [(each.text, each.status) for each in store.path("x")] == [
            ("Hi", "done"),
            ("all of it", "done"),
        ]


def test_saves_that_fail_become_rare(path, monkeypatch):
    """A full disk costs a reply of five minutes some twenty tries, not 1,500."""
    clock, tries = [0.0], []
    with Store(path) as store:
        turn = store.begin_turn("x", "Hi")
        turn.reply._monotonic = lambda: clock[0]

        def write(wait=None):
            tries.append(clock[0])
            raise StoreError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(store.database, "write", write)
            for _ in range(1500):
                clock[0] += 0.2
                with suppress(StoreError):
                    turn.reply.append("word ")
            assert 10 < len(tries) < 30
        clock[0] += 20
        turn.reply.append("end")
        assert store.message(turn.reply.message_id).text.endswith("word end")
        turn.reply.finish()


def test_a_refused_message_goes_with_the_conversation_it_began(path):
    with Store(path) as store:
        turn = store.begin_turn("new", "far too long")
        store.take_back(turn)
        assert store.list_conversations() == []
        store.begin_turn("old", "Hi").reply.finish()
        turn = store.begin_turn("old", "far too long")
        store.take_back(turn)
        assert [message.text for message in store.path("old")] == ["Hi", ""]


def test_a_refused_message_changes_nothing_of_its_conversation(path):
    """It is not the newest one then, and keeps its model and its system prompt."""
    with Store(path) as store:
        for name in ("old", "new"):
            store.begin_turn(name, "Hi", model="m", system="Be brief.").reply.finish()
        before = store.conversation("old")
        turn = store.begin_turn("old", "far too long", model="other", system="Be long.")
        assert store.newest().id == "old"
        store.take_back(turn)
        assert store.newest().id == "new"
        assert store.conversation("old") == before


def test_both_ways_to_chat_store_the_same_of_a_reply(scripted):
    from engine import EngineError, Finished, Timings, Usage

    def finished(reason, error=None):
        return Finished(reason, "", (), Usage(), Timings(), error, 7, None)

    failed = finished("error", EngineError("bad_logits", "NaN"))
    assert outcome_of(failed, empty=True).status == "interrupted", "an empty reply is none: it goes"
    assert outcome_of(failed, empty=False).status == "error"
    assert outcome_of(finished("aborted"), empty=False).status == "interrupted"
    assert outcome_of(finished("length"), empty=False).status == "done"
    assert outcome_of(finished("length"), empty=False).metrics["seed"] == 7
    assert outcome_of(None, empty=False) == Outcome("error", "error", {})
    assert [message.content for message in prompt_of([said_now("Hi")])] == ["Hi"]
