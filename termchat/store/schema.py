"""The tables of the conversation store, as the list of steps that lead to them.

Step i brings a database from `user_version` i to i + 1. A step that has been released is never changed:
what comes later is a further step.

conversation  one chat; `leaf_id`: last message of the branch shown; `deleted` is set while it can be undone;
              `unread`: a reply ended while another one was shown
message       a tree by `parent_id`; siblings are edits and regenerated answers; `writer`: who streams into it
draft         what was typed and not sent, a row for each window (`writer`, as of messages); without a
              conversation: of one that has no message yet
message_fts   trigrams of finished messages (one that streams would be indexed again at every flush)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

Migrations = Sequence[Sequence[str]]

APPLICATION_ID = 0x74636861  # "tcha": tells the file from another program's database

_V1 = (
    """CREATE TABLE conversation (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL DEFAULT '',
        title_auto INTEGER NOT NULL DEFAULT 1,
        model TEXT NOT NULL DEFAULT '',
        system TEXT NOT NULL DEFAULT '',
        params TEXT NOT NULL DEFAULT '{}',
        leaf_id INTEGER,
        forked_from TEXT,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        deleted REAL
    )""",
    """CREATE TABLE message (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        conversation_id TEXT NOT NULL REFERENCES conversation(id) ON DELETE CASCADE,
        parent_id INTEGER REFERENCES message(id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        status TEXT NOT NULL,
        text TEXT NOT NULL DEFAULT '',
        thinking TEXT NOT NULL DEFAULT '',
        model TEXT NOT NULL DEFAULT '',
        finish_reason TEXT,
        metrics TEXT NOT NULL DEFAULT '{}',
        writer TEXT,
        created REAL NOT NULL
    )""",
    "CREATE INDEX conversation_updated ON conversation(updated)",
    "CREATE INDEX message_conversation ON message(conversation_id, id)",
    "CREATE INDEX message_parent ON message(parent_id)",
    "CREATE INDEX message_streaming ON message(writer) WHERE status = 'streaming'",
    """CREATE VIRTUAL TABLE message_fts USING fts5(
        text, content='message', content_rowid='id', tokenize='trigram'
    )""",
    """CREATE TRIGGER message_insert AFTER INSERT ON message WHEN new.status <> 'streaming' BEGIN
        INSERT INTO message_fts(rowid, text) VALUES (new.id, new.text);
    END""",
    """CREATE TRIGGER message_update AFTER UPDATE OF text, status ON message BEGIN
        INSERT INTO message_fts(message_fts, rowid, text)
            SELECT 'delete', old.id, old.text WHERE old.status <> 'streaming';
        INSERT INTO message_fts(rowid, text) SELECT new.id, new.text WHERE new.status <> 'streaming';
    END""",
    """CREATE TRIGGER message_delete AFTER DELETE ON message WHEN old.status <> 'streaming' BEGIN
        INSERT INTO message_fts(message_fts, rowid, text) VALUES ('delete', old.id, old.text);
    END""",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

_V2 = (
    "ALTER TABLE conversation ADD COLUMN unread INTEGER NOT NULL DEFAULT 0",
    """CREATE TABLE draft (
        key TEXT PRIMARY KEY,
        conversation_id TEXT REFERENCES conversation(id) ON DELETE CASCADE,
        writer TEXT NOT NULL,
        text TEXT NOT NULL,
        updated REAL NOT NULL
    )""",
    "CREATE INDEX draft_conversation ON draft(conversation_id)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_V1, _V2)


def version_by_tables(db: sqlite3.Connection, migrations: Migrations) -> int | None:
    """Which version's tables these are, where the numbers in the file's head do not tell: a database that was
    written from its dump has them no more. None: they are no version's.
    """
    found = _columns(db)
    for version in range(len(migrations), 0, -1):
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as other:
            migrate(other, migrations[:version])
            if _columns(other) == found:
                return version
    return None


def _columns(db: sqlite3.Connection) -> set[tuple[str, str]]:
    tables = [str(row[0]) for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    ours = [name for name in tables if not name.startswith(("message_fts", "sqlite_"))]
    return {(name, str(row[1])) for name in ours for row in db.execute(f"PRAGMA table_info({_quoted(name)})")}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def adopt(db: sqlite3.Connection, migrations: Migrations) -> bool:
    """Write the numbers that a dump has lost into the file's head; another process may be doing the same.

    False: they are there, or its tables are no version's.
    """
    with _transaction(db):
        version = version_by_tables(db, migrations)
        if version is None or version == int(db.execute("PRAGMA user_version").fetchone()[0]):
            return False
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {version}")
        return True


def migrate(db: sqlite3.Connection, migrations: Migrations) -> None:
    """Run the missing steps, each in a transaction of its own; another process may be doing the same."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    for step, statements in enumerate(migrations[version:], version):
        with _transaction(db):
            if int(db.execute("PRAGMA user_version").fetchone()[0]) == step:
                for statement in statements:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {step + 1}")


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
