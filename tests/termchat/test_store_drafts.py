"""What was typed and not sent, kept for each window; and deleted conversations that leave no trace."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from termchat.store import (
    Draft,
    Store,
    StoreBusyError,
    leave_draft,
    save_draft,
    search,
    take_draft,
    take_drafts,
)
from termchat.store.schema import MIGRATIONS


def typed(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute("SELECT text FROM draft ORDER BY text")]


def test_N013_two_windows_keep_their_own_texts(tmp_path: Path) -> None:
    with Store(tmp_path / "t.db") as first, Store(tmp_path / "t.db") as second:
        first.get_or_create("c")
        save_draft(first, "1", "c", "typed in one")
        save_draft(second, "2", "c", "typed in the other")
        save_draft(first, "3", None, "of a new one")
        assert take_draft(second, "c", "x") == ""
        assert take_drafts(second) == []
        save_draft(second, "2", "c", "  ")  # sent, or deleted
        assert typed(tmp_path / "t.db") == ["of a new one", "typed in one"]
    with Store(tmp_path / "t.db") as third:
        assert take_drafts(third) == [Draft("3", "of a new one")]
        save_draft(third, "4", "c", "typed now")
        assert take_draft(third, "c", "4") == "typed in one"
        with Store(tmp_path / "t.db") as fourth:
            assert take_draft(fourth, "c", "5") == ""
            leave_draft(third, "4")
            assert take_draft(fourth, "c", "5") == "typed in one\n\ntyped now"
        assert typed(tmp_path / "t.db") == ["of a new one", "typed in one\n\ntyped now"]


def test_N013_a_window_that_was_killed_leaves_its_text(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from termchat.store import Store, save_draft
save_draft(Store(Path(sys.argv[1])), "k", None, "half a thought")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t.db")], timeout=300)
    assert done.returncode == -signal.SIGKILL
    with Store(tmp_path / "t.db") as store:
        assert take_drafts(store) == [Draft("k", "half a thought")]


def test_a_draft_outlives_its_conversation_unless_that_is_purged(tmp_path: Path) -> None:
    with Store(tmp_path / "t.db") as store:
        store.get_or_create("c")
        save_draft(store, "1", "c", "typed")
        store.delete("c")
        assert typed(tmp_path / "t.db") == ["typed"]
        store.purge_deleted()
        assert typed(tmp_path / "t.db") == []
        save_draft(store, "1", "c", "typed on, in a window that still shows it")
    with Store(tmp_path / "t.db") as store:
        assert [draft.key for draft in take_drafts(store)] == ["1"]


def test_an_older_database_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as db:
        for statement in MIGRATIONS[0]:
            db.execute(statement)
        db.execute("INSERT INTO conversation(id, created, updated) VALUES ('c', 1, 1)")
        db.execute("PRAGMA user_version = 1")
        db.commit()
    path.chmod(0o400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("termchat.store.database.writable", lambda path: False)
        with Store(path) as store:
            assert store.notice is not None
            assert [(each.id, each.unread) for each in store.list_conversations()] == [("c", False)]
            assert take_draft(store, "c", "k") == ""


def test_purged_conversations_leave_no_trace_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    words = "xylophonequagmire zebraquartz"
    with Store(path) as store:
        for name in ("kept", "gone"):
            store.get_or_create(name)
            for number in range(30):
                store.add_message(name, "user", f"{words if name == 'gone' else 'ordinary'} {number}")
        store.delete("gone")
        assert store.undelete("gone").messages == 30
        store.delete("gone")
        assert store.purge_deleted() == 1
        assert search(store, "xylophonequagmire") == []
        assert len(search(store, "ordinary")) == 30
        assert store.purge_deleted() == 0
        for file in tmp_path.glob("t.db*"):
            if file.is_file():
                left = [part for part in (b"xylophone", b"uagm", b"uartz") if part in file.read_bytes()]
                assert left == [], file


def test_what_another_program_keeps_from_being_purged_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Store(path, busy_timeout=0.1) as store, closing(sqlite3.connect(path)) as reader:
        store.get_or_create("c")
        store.delete("c")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM conversation").fetchall()
        with pytest.raises(StoreBusyError, match="may still hold deleted text; purge again later"):
            store.purge_deleted()
        reader.execute("ROLLBACK")
        assert store.purge_deleted() == 0


def test_how_a_branch_ends_is_known_without_its_messages(tmp_path: Path) -> None:
    with Store(tmp_path / "t.db") as store:
        for name in ("done", "asked", "stopped", "failed", "none"):
            store.get_or_create(name)
            if name != "none":
                store.add_message(name, "user", "q")
        for name, status in (("done", "done"), ("stopped", "interrupted"), ("failed", "error")):
            writer = store.begin_reply(name)
            writer.append("words")
            writer.finish(status)  # type: ignore[arg-type]
        store.set_unread("done", True)
        found = {each.id: (each.ending, each.unread) for each in store.list_conversations()}
    assert found == {
        "done": ("", True),
        "asked": ("unanswered", False),
        "stopped": ("interrupted", False),
        "failed": ("error", False),
        "none": ("", False),
    }


def test_a_reader_learns_that_another_has_written(tmp_path: Path) -> None:
    with Store(tmp_path / "t.db") as first, Store(tmp_path / "t.db") as second:
        before = first.database.version()
        first.get_or_create("own")
        assert first.database.version() == before
        second.get_or_create("other")
        assert first.database.version() != before
