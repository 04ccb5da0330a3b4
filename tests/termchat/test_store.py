"""Conversations and their trees of messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from termchat.messages import StoredMessage, prompt_of
from termchat.store import NotFoundError, Store, StoreError, search
from termchat.store.values import title_of


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with Store(tmp_path / "t.db", clock) as opened:
        yield opened
        assert opened.database.query("PRAGMA integrity_check")[0][0] == "ok"
        assert opened.database.query("PRAGMA foreign_key_check") == []
        with opened.database.write() as db:  # the index holds exactly what the messages hold
            db.execute("INSERT INTO message_fts(message_fts, rank) VALUES ('integrity-check', 0)")


def turns(store: Store, count: int) -> str:
    """A conversation of `count` question-answer pairs."""
    conversation = store.create_conversation(model="m")
    for turn in range(count):
        store.add_message(conversation.id, "user", f"question {turn}")
        with store.begin_reply(conversation.id, model="m") as reply:
            reply.append(f"answer {turn}")
            reply.finish("done", "stop")
    return conversation.id


def texts(store: Store, conversation_id: str) -> list[str]:
    return [message.text for message in store.path(conversation_id)]


def test_a_conversation_is_a_path_of_messages(store: Store) -> None:
    conversation = store.create_conversation(model="m", system="be brief", params={"temperature": 0.5})
    assert (conversation.title, conversation.messages, conversation.leaf_id) == ("", 0, None)
    first = store.add_message(conversation.id, "user", "  \n Hello,\tthere \n second line")
    assert first.parent_id is None
    assert first.status == "done"
    reply = store.begin_reply(conversation.id, model="m2")
    reply.append("Hi")
    assert store.path(conversation.id)[-1].status == "streaming"
    done = reply.finish("done", "stop", {"usage": {"completion_tokens": 2}})
    assert done is not None
    assert (done.text, done.status, done.finish_reason) == ("Hi", "done", "stop")
    assert done.metrics == {"usage": {"completion_tokens": 2}}
    found = store.conversation(conversation.id)
    assert (found.title, found.messages, found.leaf_id) == ("Hello, there", 2, done.id)
    assert (found.model, found.system, found.params) == ("m2", "be brief", {"temperature": 0.5})
    assert [(m.role, m.parent_id) for m in store.path(conversation.id)] == [
        ("user", None),
        ("assistant", first.id),
    ]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        ("\n\n  \t ", ""),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("word " * 30, "word " * 10 + "word…"),
        ("a\x1b[31mred\x00b\x9bc", "a [31mred b c"),
        ("\u2028first\u2028second", "first"),
        ("中文" * 40, "中文" * 29 + "中…"),
    ],
)
def test_titles_are_one_short_clean_line(text: str, title: str) -> None:
    assert title_of(text) == title
    assert len(title) <= 60


def test_a_title_given_by_hand_stays_and_an_empty_one_goes_back(store: Store) -> None:
    name = turns(store, 1)
    assert store.conversation(name).title == "question 0"
    assert store.rename(name, "My\ntitle").title == "My"
    assert not store.conversation(name).title_auto
    store.add_message(name, "user", "more")
    assert store.conversation(name).title == "My"
    assert store.rename(name, " ").title == "question 0"


def test_conversations_are_listed_by_last_use(store: Store) -> None:
    names = [turns(store, 1) for _ in range(3)]
    assert [c.id for c in store.list_conversations()] == names[::-1]
    store.add_message(names[0], "user", "again")
    assert [c.id for c in store.list_conversations(limit=2)] == [names[0], names[2]]
    assert [c.id for c in store.list_conversations()][2:] == [names[1]]
    newest = store.newest()
    assert newest is not None
    assert (newest.id, newest.messages) == (names[0], 3)


def test_conversations_are_found_by_the_beginning_of_their_id(store: Store) -> None:
    for name in ("job-1", "job-10", "other", "%x"):
        store.create_conversation(name)
    assert store.find("job-1").id == "job-1"  # the exact one goes first
    assert store.find("oth").id == "other"
    assert store.find("%").id == "%x"
    with pytest.raises(NotFoundError, match="several conversations begin with 'job': job-1, job-10"):
        store.find("job")
    for missing in ("zz", "", "_ob"):
        with pytest.raises(NotFoundError, match="there is no conversation"):
            store.find(missing)


def test_an_id_is_created_once_and_then_found(store: Store) -> None:
    made = store.get_or_create("job-1", model="m", system="s")
    store.add_message("job-1", "user", "x")
    again = store.get_or_create("job-1", model="other", system="other")
    assert (again.id, again.messages, again.system) == (made.id, 1, "s")
    store.get_or_create("job")  # no prefix of anything
    with pytest.raises(StoreError, match="there is a conversation 'job' already"):
        store.create_conversation("job")


@pytest.mark.parametrize("name", ["", "a b", "a\n", "\0", "-c", "x" * 101, "\ud800", "a\u2028b", "\x1b[1m"])
def test_ids_that_would_break_something_are_refused(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="a conversation's id has 1 to 100"):
        store.get_or_create(name)
    assert store.list_conversations() == []


def test_a_clock_that_was_set_back_does_not_hide_what_is_used_now(store: Store, clock: Clock) -> None:
    """As on a machine that had the wrong date for a while: its conversations would stay the newest."""
    store.create_conversation("before")
    clock.now += 30 * 24 * 3600
    store.create_conversation("ahead")
    store.add_message("ahead", "user", "x")
    clock.now -= 30 * 24 * 3600
    for use in (
        lambda: store.create_conversation("now"),
        lambda: store.add_message("before", "user", "y"),
        lambda: store.touch("now"),
        lambda: store.add_message("ahead", "user", "z"),
    ):
        use()
        used, *others = store.list_conversations()
        assert store.newest() == used
        assert used.updated <= clock.now
        assert all(each.updated < used.updated for each in others)
    assert store.list_conversations()[0].id == "ahead"


def test_delete_can_be_undone_for_a_week(store: Store, clock: Clock, tmp_path: Path) -> None:
    first, second = turns(store, 1), turns(store, 1)
    store.delete(first)
    store.delete(second)
    assert store.list_conversations() == []
    for act in (store.conversation, store.find, store.delete):
        with pytest.raises(NotFoundError):
            act(first)
    assert store.undelete().id == second  # the last one
    clock.now += 6 * 24 * 3600
    Store(tmp_path / "t.db", clock).close()
    assert store.undelete(first).id == first
    assert texts(store, first) == ["question 0", "answer 0"]
    store.delete(first)
    clock.now += 8 * 24 * 3600
    Store(tmp_path / "t.db", clock).close()
    with pytest.raises(NotFoundError, match="there is no deleted conversation"):
        store.undelete()
    assert store.database.query("SELECT count(*) FROM message")[0][0] == 2


def test_the_id_of_a_deleted_conversation_begins_anew(store: Store) -> None:
    store.get_or_create("job")
    store.add_message("job", "user", "old")
    store.delete("job")
    store.get_or_create("job")
    assert texts(store, "job") == []


def test_B087_regenerating_adds_an_alternative_and_changes_nothing_else(store: Store) -> None:
    name = turns(store, 10)
    before = store.path(name)
    with store.regenerate(before[-1].id) as reply:
        reply.append("another answer 9")
        reply.finish("done", "stop")
    after = store.path(name)
    assert after[:-1] == before[:-1]
    assert after[-1].text == "another answer 9"
    assert store.siblings(after[-1].id) == [before[-1].id, after[-1].id]
    assert store.select(before[-1].id) == before[-1].id
    assert store.path(name) == before


def test_B087_cancelling_at_once_leaves_the_old_reply(store: Store) -> None:
    name = turns(store, 10)
    before = store.path(name)
    reply = store.regenerate(before[-1].id)
    assert reply.finish("interrupted", "aborted") is None
    assert store.path(name) == before
    assert store.siblings(before[-1].id) == [before[-1].id]
    with store.regenerate(before[-1].id):  # an exception or an early return
        pass
    assert store.path(name) == before


def test_B087_cancelling_later_keeps_both(store: Store) -> None:
    name = turns(store, 2)
    before = store.path(name)
    with store.regenerate(before[-1].id) as reply:
        reply.append("par")
    after = store.path(name)
    assert (after[-1].text, after[-1].status) == ("par", "interrupted")
    assert store.tree(name)[: len(before)] == before


def test_B087_editing_an_early_message_keeps_what_followed_it(store: Store) -> None:
    name = turns(store, 10)
    before = store.path(name)
    edited = store.edit(before[2].id, "question 1, better")
    assert (edited.role, edited.parent_id) == ("user", before[1].id)
    assert texts(store, name) == ["question 0", "answer 0", "question 1, better"]
    assert store.select(before[2].id) == before[-1].id  # all the way down the old branch
    assert store.path(name) == before
    root = store.edit(before[0].id, "another beginning")
    assert texts(store, name) == ["another beginning"]
    assert store.siblings(root.id) == [before[0].id, root.id]
    assert store.select(before[0].id) == edited.id  # the newest alternative on the way down


def test_B087_two_windows_drop_nothing_of_each_other(store: Store, tmp_path: Path) -> None:
    name = turns(store, 10)
    before = store.path(name)
    with Store(tmp_path / "t.db") as second:
        one = store.regenerate(before[-1].id)
        two = second.regenerate(before[-1].id)
        edited = second.edit(before[4].id, "edited in the second window")
        one.append("one")
        two.append("two")
        assert one.finish() is not None
        assert two.finish() is not None
    everything = {message.id: message.text for message in store.tree(name)}
    assert [everything[message.id] for message in before] == [message.text for message in before]
    assert {everything[i] for i in store.siblings(before[-1].id)} == {"answer 9", "one", "two"}
    assert everything[edited.id] == "edited in the second window"
    assert [m.text for m in store.path(name, before[-1].id)] == [m.text for m in before]


def test_going_down_takes_the_newest_alternative(store: Store) -> None:
    name = turns(store, 2)
    path = store.path(name)
    newer = store.edit(path[2].id, "newer")
    store.select(path[0].id)
    assert store.path(name)[-1].id == newer.id


def test_a_fork_is_a_copy_of_one_branch(store: Store) -> None:
    name = turns(store, 3)
    store.set_params(name, {"top_k": 3})
    path = store.path(name)
    fork = store.fork(name, path[3].id)
    assert (fork.forked_from, fork.messages, fork.params) == (name, 4, {"top_k": 3})
    assert texts(store, fork.id) == ["question 0", "answer 0", "question 1", "answer 1"]
    store.add_message(fork.id, "user", "only here")
    assert store.path(name) == path
    with pytest.raises(NotFoundError, match=f"no message {path[0].id} in"):
        store.fork(fork.id, path[0].id)


def test_a_fork_in_mid_stream_has_what_was_said_so_far(store: Store) -> None:
    conversation = store.create_conversation()
    store.add_message(conversation.id, "user", "q")
    with store.begin_reply(conversation.id) as reply:
        reply.append("so far")
        fork = store.fork(conversation.id)
        reply.append(", and more")
        reply.finish()
    copy = store.path(fork.id)[-1]
    assert (copy.text, copy.status) == ("so far", "interrupted")


def test_messages_go_where_they_belong_only(store: Store) -> None:
    one, two = turns(store, 1), turns(store, 1)
    with pytest.raises(StoreError, match="is not in the conversation"):
        store.add_message(two, "user", "x", parent_id=store.path(one)[-1].id)
    with pytest.raises(StoreError, match="a message's role is one of system, user, assistant, tool"):
        store.add_message(two, "robot", "x")  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="there is no message 999"):
        store.edit(999, "x")
    with pytest.raises(NotFoundError, match="there is no conversation 'nope'"):
        store.add_message("nope", "user", "x")
    with pytest.raises(StoreError, match="is not an answer"):
        store.regenerate(store.path(one)[0].id)
    assert [m.text for m in store.tree(two)] == ["question 0", "answer 0"]


def test_B077_what_is_stored_is_valid_utf8_and_nul_is_kept(store: Store) -> None:
    name = store.create_conversation(system="s\ud800").id
    odd = "caf\udce9 \ud83d\ude00 \ud800 nul\0after \ufeff bom\r\n"
    store.add_message(name, "user", odd)
    with store.begin_reply(name) as reply:
        reply.append("half \ud83d", "think \udfff")
        reply.append("\ude00 whole")
        reply.finish("done", "stop", {"odd\ud800": "\0"})
    user, answer = store.path(name)
    assert user.text == "caf\ufffd 😀 \ufffd nul\0after \ufeff bom\r\n"
    assert answer.text == "half 😀 whole"
    assert answer.thinking == "think \ufffd"
    for table, columns in (("conversation", "title, system"), ("message", "text, thinking, metrics")):
        for row in store.database.query(
            f"SELECT {', '.join(f'CAST({c} AS BLOB)' for c in columns.split(', '))} FROM {table}"
        ):
            for value in row:
                value.decode("utf-8", "strict")


def test_B017_the_roles_of_a_prompt_alternate_after_a_cancelled_reply(store: Store) -> None:
    name = store.create_conversation().id
    store.add_message(name, "user", "first")
    store.begin_reply(name).finish("interrupted", "aborted")  # before the first token
    store.add_message(name, "user", "second")
    prompt = prompt_of(store.path(name), "be kind")
    assert [(m.role, m.content) for m in prompt] == [("system", "be kind"), ("user", "first\n\nsecond")]
    with store.begin_reply(name) as reply:
        reply.append("after some tok")  # and then cancelled
    store.add_message(name, "user", "third")
    assert [m.role for m in prompt_of(store.path(name))] == ["user", "assistant", "user"]
    with store.begin_reply(name) as reply:
        reply.append("", "only thoughts")
    store.add_message(name, "user", "fourth")
    prompt = prompt_of(store.path(name))
    assert [m.role for m in prompt] == ["user", "assistant", "user"]
    assert prompt[-1].content == "third\n\nfourth"


def test_what_the_user_typed_the_newest_first_and_once(store: Store) -> None:
    name = store.create_conversation().id
    for text in ("a", "b", "a", "c"):
        store.add_message(name, "user", text)
    gone = turns(store, 1)
    assert store.prompts() == ["question 0", "c", "a", "b"]
    store.delete(gone)
    assert store.prompts(2) == ["c", "a"]


def test_an_unfinished_transaction_leaves_nothing(store: Store) -> None:
    name = turns(store, 1)

    def fail_half_way() -> None:
        with store.database.write():
            store.add_message(name, "user", "not to be")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert texts(store, name) == ["question 0", "answer 0"]
    assert isinstance(store.path(name)[0], StoredMessage)


def test_a_store_in_memory_is_like_another_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store(None) as store, Store(None) as other:
        assert store.notice is None
        turn = store.begin_turn("c", "Hello")
        turn.reply.append("Hi")
        assert store.is_alive(store.writer)
        assert not other.is_alive(store.writer)
        assert store.recover() == 0, "it is being written"
        turn.reply.finish("stop")
        assert [message.text for message in store.path("c")] == ["Hello", "Hi"]
        assert [hit.conversation_id for hit in search(store, "hello")] == ["c"]
        store.delete("c")
        assert store.purge_deleted() == 1
        assert other.list_conversations() == []
    assert list(tmp_path.iterdir()) == []
