"""The store with several processes, crashes, locks, and databases of other versions."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from folders import digests
from programs import end, line, start
from termchat.files import open_private
from termchat.store import Store, StoreBusyError, StoreError, StoreReadOnlyError, writers
from termchat.store.database import Database
from termchat.store.schema import MIGRATIONS


def healthy(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


KILLED = """
import os, signal
store = Store(path)
store.get_or_create("c")
store.add_message("c", "user", "the question")
reply = store.begin_reply("c", flush_every=0)
for piece in range(50):
    reply.append(f"word{piece} ")
print("streamed", flush=True)
if sys.argv[2:] == ["now"]:
    os._exit(0)
sys.stdin.read()
"""


V2 = (
    "ALTER TABLE conversation ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
    "UPDATE conversation SET pinned = 1",
)


@pytest.mark.slow
def test_B081_eight_processes_that_start_with_no_database(tmp_path: Path) -> None:
    path = tmp_path / "fresh" / "t.db"
    code = """
with Store(path) as store:
    c = store.create_conversation()
    store.add_message(c.id, "user", f"question {sys.argv[2]}")
    with store.begin_reply(c.id) as reply:
        for piece in range(5):
            reply.append(f"{sys.argv[2]}.{piece} ")
        reply.finish("done", "stop")
"""
    running = [start(code, path, number) for number in range(8)]
    for process in running:
        end(process)
    with Store(path) as store:
        found = {}
        for conversation in store.list_conversations():
            question, answer = store.path(conversation.id)
            found[question.text] = (answer.text, answer.status)
    assert found == {
        f"question {n}": ("".join(f"{n}.{piece} " for piece in range(5)), "done") for n in range(8)
    }
    healthy(path)


@pytest.mark.slow
def test_B081_two_processes_lose_none_of_500_turns_each(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    code = """
with Store(path) as store:
    store.get_or_create("shared")
    for turn in range(500):
        store.add_message("shared", "user", f"{sys.argv[2]} {turn}")
"""
    running = [start(code, path, who) for who in "ab"]
    for process in running:
        end(process)
    with Store(path) as store:
        texts = [message.text for message in store.tree("shared")]
    for who in "ab":
        assert [text for text in texts if text.startswith(who)] == [f"{who} {turn}" for turn in range(500)]
    assert len(texts) == 1000
    healthy(path)


def test_threads_of_one_process_may_share_a_store(tmp_path: Path) -> None:
    with Store(tmp_path / "t.db") as store:

        def work(who: int) -> None:
            name = store.create_conversation(f"c{who}").id
            for turn in range(30):
                store.add_message(name, "user", str(turn))
                store.list_conversations()

        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for who in range(4):
            assert [m.text for m in store.path(f"c{who}")] == [str(turn) for turn in range(30)]


def test_B081_a_lock_that_lasts_is_a_busy_error_and_a_stream_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with (
        Store(path, busy_timeout=0.2) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        name = store.create_conversation().id
        store.add_message(name, "user", "q")
        reply = store.begin_reply(name, flush_every=0)
        reply.append("before ")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match=r"t\.db is locked by another program"):
            store.add_message(name, "user", "x")
        reply.append("while ")  # no error: saved later
        with pytest.raises(StoreBusyError):
            reply.finish()
        assert store.path(name)[-1].text == "before "  # reading goes on
        other.execute("ROLLBACK")
        done = reply.finish()
        assert done is not None
        assert (done.text, done.status) == ("before while ", "done")


def test_a_lock_does_not_hold_up_the_start_when_there_is_something_to_recover(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    end(start(KILLED, path, "now"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with Store(path, busy_timeout=0.1) as store:
            assert store.path("c")[-1].status == "streaming"
        other.execute("ROLLBACK")
    with Store(path) as store:
        assert store.path("c")[-1].status == "interrupted"


def test_B083_after_kill_9_the_partial_reply_is_there_and_marked(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    process = start(KILLED, path)
    assert line(process) == b"streamed"
    with Store(path) as store:  # while it lives its reply is not touched
        assert [m.status for m in store.path("c")] == ["done", "streaming"]
        assert store.recover() == 0
        process.kill()
        process.communicate()
        assert store.recover() == 1
        question, answer = store.path("c")
    assert question.text == "the question"
    assert answer.text == "".join(f"word{piece} " for piece in range(50))
    assert answer.status == "interrupted"
    healthy(path)
    assert list((tmp_path / "t.db-writers").iterdir()) == []

    with Store(path) as store:
        reply = store.resume_reply(answer.id)
        reply.append("and the rest")
        done = reply.finish("done", "stop")
        assert done is not None
        assert done.text == answer.text + "and the rest"
        assert store.siblings(answer.id) == [answer.id]


def test_B083_a_kill_before_the_first_word_leaves_the_question_only(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    code = """
import os
store = Store(path)
store.get_or_create("c")
store.add_message("c", "user", "q")
with store.begin_reply("c") as reply:
    reply.append("old answer")
    reply.finish()
store.regenerate(reply.message_id)
os._exit(0)
"""
    end(start(code, path))
    with Store(path) as store:
        assert [m.text for m in store.path("c")] == ["q", "old answer"]
        assert len(store.tree("c")) == 2


@pytest.mark.slow
def test_B081_eight_processes_that_start_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    code = """
import os
store = Store(path)
for number in range(20):
    store.get_or_create(f"c{number}")
    store.add_message(f"c{number}", "user", "q")
    reply = store.begin_reply(f"c{number}", flush_every=0)
    reply.append("partial" * (number % 2))
os._exit(0)
"""
    end(start(code, path))
    running = [start("print(len(Store(path).list_conversations()))", path) for _ in range(8)]
    assert [end(process) for process in running] == [b"20\n"] * 8
    with Store(path) as store:
        for number in range(20):
            texts = [(m.text, m.status) for m in store.path(f"c{number}")]
            assert texts == [("q", "done")] + [("partial", "interrupted")] * (number % 2)


def test_B083_what_is_not_yet_saved_is_of_the_last_moment(tmp_path: Path) -> None:
    with Store(tmp_path / "t.db") as store:
        store.get_or_create("c")
        reply = store.begin_reply("c")
        now = 100.0
        reply._monotonic = lambda: now
        streamed = ""
        for _ in range(200):
            streamed += "x"
            reply.append("x")
            saved = store.path("c")[-1].text
            assert streamed.startswith(saved)
            assert len(streamed) - len(saved) <= 2  # 0.2 s of ten a second
            now += 0.1
        reply.append("tail")
        now += 1
        reply.tick()
        assert store.path("c")[-1].text == streamed + "tail"
        assert reply.finish("error", "error") is not None
        last = store.path("c")[-1]
        assert (last.text, last.status) == (streamed + "tail", "error")


def test_an_answer_that_is_being_written_cannot_be_resumed(tmp_path: Path) -> None:
    with Store(tmp_path / "t.db") as store, Store(tmp_path / "t.db") as other:
        store.get_or_create("c")
        user = store.add_message("c", "user", "q")
        reply = store.begin_reply("c")
        for message_id in (reply.message_id, user.id, 999):
            with pytest.raises(StoreError, match="is not an answer that could go on"):
                other.resume_reply(message_id)
        assert other.recover() == 0  # a second store of the same process sees that the first one lives


def test_what_killed_processes_leave_behind_is_swept_up(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    code = "import os; store = Store(path); store.get_or_create('c'); store.begin_reply('c').finish()\n"
    end(start(code + "os._exit(0)", path))
    writers = tmp_path / "t.db-writers"
    assert len(list(writers.iterdir())) == 1
    Store(path).close()
    assert list(writers.iterdir()) == []


@pytest.mark.slow
def test_writers_come_and_go_without_losing_their_claims(tmp_path: Path) -> None:
    code = """
from termchat.store.writers import Writer, is_alive, sweep
for _ in range(100):
    writer = Writer(path)
    name = writer.name
    assert is_alive(path, name)
    sweep(path)
    assert is_alive(path, name)
    writer.close()
    assert not is_alive(path, name)
"""
    running = [start(code, tmp_path / "writers") for _ in range(4)]
    for process in running:
        end(process)
    assert list((tmp_path / "writers").iterdir()) == []


def test_a_claim_that_is_swept_away_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def slow(path: Path, flags: int) -> int:
        fd = open_private(path, flags)
        if not opened:
            writers.sweep(tmp_path)  # another process looks just now
        opened.append(path)
        return fd

    monkeypatch.setattr(writers, "open_private", slow)
    writer = writers.Writer(tmp_path)
    assert writers.is_alive(tmp_path, writer.name)
    assert len(opened) == 2
    writer.close()


def test_closing_a_store_gives_its_replies_up(tmp_path: Path) -> None:
    store = Store(tmp_path / "t.db")
    store.get_or_create("c")
    store.begin_reply("c", flush_every=0).append("partial")
    store.close()
    store.close()
    with Store(tmp_path / "t.db") as again:
        assert [(m.text, m.status) for m in again.path("c")] == [("partial", "interrupted")]


def test_B085_a_newer_database_is_read_but_not_changed_by_a_byte(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.get_or_create("c")
        store.add_message("c", "user", "from the future")
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE message ADD COLUMN mood TEXT")
        db.execute("PRAGMA user_version = 999")
        db.commit()
    before = digests(tmp_path)
    with Store(path) as store:
        assert store.notice is not None
        assert (
            f"written by a newer termchat (schema 999, this one knows {len(MIGRATIONS)}), so nothing is saved"
            in store.notice
        )
        assert [m.text for m in store.path("c")] == ["from the future"]
        for act in (
            lambda: store.create_conversation(),
            lambda: store.add_message("c", "user", "x"),
            lambda: store.begin_reply("c"),
            lambda: store.delete("c"),
            lambda: store.recover() or store.rename("c", "x"),
        ):
            with pytest.raises(StoreReadOnlyError, match="newer termchat"):
                act()
    assert {name: digests(tmp_path)[name] for name in before} == before
    healthy(path)


def test_B085_a_newer_database_with_an_open_log_is_not_folded_in(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    Store(path).close()
    code = """
import os, sqlite3
db = sqlite3.connect(path)
db.execute("PRAGMA user_version = 999")
db.commit()
os._exit(0)  # the change is in the -wal file only
"""
    end(start(code, path))
    assert (tmp_path / "t.db-wal").stat().st_size > 0
    before = digests(tmp_path)
    with Store(path) as store:
        assert store.notice is not None
    after = digests(tmp_path)
    assert after["t.db"] == before["t.db"]
    assert after["t.db-wal"] == before["t.db-wal"]


def test_B085_an_older_database_is_migrated_once_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.get_or_create("c")
        store.add_message("c", "user", "kept")
    for _ in range(2):
        database = Database(path, (*MIGRATIONS, V2))
        assert database.query("SELECT id, pinned FROM conversation")[0][:] == ("c", 1)
        assert database.query("PRAGMA user_version")[0][0] == len(MIGRATIONS) + 1
        assert database.query("SELECT text FROM message")[0][0] == "kept"
        database.close()
    with Store(path) as store:  # and this version leaves it alone
        assert store.notice is not None


def test_B085_a_migration_killed_half_way_repeats_cleanly(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.get_or_create("c")
    code = """
import os, signal, sqlite3
from termchat.store import database
from termchat.store.schema import MIGRATIONS
connect = database.Database._connect
def killing(self, mode):
    db = connect(self, mode)
    db.create_function("kill", 0, lambda: os.kill(os.getpid(), signal.SIGKILL))
    return db
database.Database._connect = killing
database.Database(path, (*MIGRATIONS, (*eval(sys.argv[2]), "SELECT kill()")))
"""
    process = start(code, path, V2)
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert "pinned" not in [row[1] for row in db.execute("PRAGMA table_info(conversation)")]
    database = Database(path, (*MIGRATIONS, V2))
    assert database.query("SELECT id, pinned FROM conversation")[0][:] == ("c", 1)
    database.close()
    healthy(path)


def test_B085_a_first_start_that_failed_while_the_tables_were_made(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    code = """
import os
from termchat.store import database, schema
database.Database(path, ((*schema.MIGRATIONS[0][:4], "not sql"),))
"""
    process = start(code, path)
    process.communicate(timeout=300)
    assert process.returncode == 1
    with Store(path) as store:
        store.get_or_create("c")
    healthy(path)


@pytest.mark.slow
def test_B085_eight_processes_migrate_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.get_or_create("c")
    code = """
from termchat.store import database
from termchat.store.schema import MIGRATIONS
db = database.Database(path, (*MIGRATIONS, eval(sys.argv[2])))
version = db.query("PRAGMA user_version")[0][0]
assert version == len(MIGRATIONS) + 1 and db.query("SELECT pinned FROM conversation")[0][0] == 1
"""
    running = [start(code, path, V2) for _ in range(8)]
    for process in running:
        end(process)
    healthy(path)


def test_one_store_does_not_end_the_locks_of_another_in_the_same_process(tmp_path: Path) -> None:
    # POSIX drops all of a process's locks on a file when any descriptor of it is closed.
    path = tmp_path / "t.db"
    with Store(path) as store:
        store.get_or_create("c")
        with store.database.write() as db:
            db.execute("UPDATE conversation SET title = 'mine'")
            Store(path, busy_timeout=0.05).close()
            code = """
try:
    Store(path, busy_timeout=0.2).rename("c", "theirs")
except StoreBusyError:
    print("busy")
"""
            assert end(start(code, path)) == b"busy\n"
        assert store.conversation("c").title == "mine"


@pytest.mark.slow
def test_killing_a_writer_at_any_moment_leaves_a_prefix(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    code = """
store = Store(path)
store.get_or_create("c")
store.add_message("c", "user", "q")
reply = store.begin_reply("c", flush_every=0)
piece = 0
while True:
    reply.append(f"{piece} ")
    piece += 1
    if piece == 3:
        print("go", flush=True)
"""
    for wait in (0.0, 0.01, 0.05):
        process = start(code, path)
        assert line(process) == b"go"
        time.sleep(wait)
        process.kill()
        process.communicate()
        with Store(path) as store:
            last = store.path("c")[-1]
            assert last.status == "interrupted"
            words = last.text.split()
            assert words == [str(number) for number in range(len(words))]
            assert len(words) >= 3
        healthy(path)
