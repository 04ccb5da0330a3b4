"""Conversations: created, found, listed, renamed, deleted and brought back."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..messages import StoredConversation
from .database import Database
from .errors import ConversationIdError, NotFoundError, StoreError
from .values import clean, conversation_of, title_of

# Of a database that was damaged and repaired the last message may be gone: then the newest one is the last.
_SELECT = """SELECT conversation.*,
    CASE WHEN leaf_id IS NULL
            OR EXISTS (SELECT 1 FROM message WHERE id = leaf_id AND conversation_id = conversation.id)
        THEN leaf_id
        ELSE (SELECT max(id) FROM message WHERE conversation_id = conversation.id)
    END AS last,
    (SELECT role || ' ' || status FROM message WHERE message.id = leaf_id) AS leaf,
    (SELECT count(*) FROM message WHERE conversation_id = conversation.id) AS messages FROM conversation"""

_KEEP_DELETED_S = 7 * 24 * 3600
_MOMENT_S = 1e-3


class ConversationTable:
    """The conversations of one database."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds since 1970."""
        self.database = database
        self.clock = clock

    def create_conversation(
        self,
        id: str | None = None,
        *,
        title: str = "",
        model: str = "",
        system: str = "",
        params: Mapping[str, Any] | None = None,
        forked_from: str | None = None,
    ) -> StoredConversation:
        """A new conversation; `id` is drawn if not given. StoreError: the id is taken or not usable."""
        with self.database.write():
            name = checked_id(id) if id is not None else os.urandom(6).hex()
            if not self._insert(name, title, model, system, params or {}, forked_from):
                raise StoreError(f"there is a conversation {name!r} already")
            return self.conversation(name)

    def get_or_create(self, id: str, *, model: str = "", system: str = "") -> StoredConversation:
        """The conversation of exactly this id, new if there is none. StoreError: the id is not usable."""
        with self.database.write() as db:
            # One that was deleted is not brought back by the mere use of its name: it begins anew.
            db.execute("DELETE FROM conversation WHERE id = ? AND deleted IS NOT NULL", (checked_id(id),))
            self._insert(id, "", model, system, {}, None)
            return self.conversation(id)

    def conversation(self, id: str) -> StoredConversation:
        """The conversation of exactly this id. NotFoundError."""
        rows = self.database.query(f"{_SELECT} WHERE id = ? AND deleted IS NULL", clean(id))
        if not rows:
            raise NotFoundError(f"there is no conversation {id!r}")
        return conversation_of(rows[0])

    def find(self, prefix: str) -> StoredConversation:
        """The conversation of this id, or the only one that begins so. NotFoundError: none, or several."""
        prefix = clean(prefix)
        rows = self.database.query(f"{_SELECT} WHERE id = ? AND deleted IS NULL", prefix)
        if not rows and prefix:
            rows = self.database.query(
                f"{_SELECT} WHERE substr(id, 1, length(?1)) = ?1 AND deleted IS NULL ORDER BY id LIMIT 4",
                prefix,
            )
        if not rows:
            raise NotFoundError(f"there is no conversation {prefix!r}")
        if len(rows) > 1:
            names = ", ".join(str(row["id"]) for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
            raise NotFoundError(f"several conversations begin with {prefix!r}: {names}")
        return conversation_of(rows[0])

    def newest(self) -> StoredConversation | None:
        """The conversation used last."""
        return next(iter(self.list_conversations(limit=1)), None)

    def list_conversations(self, limit: int = -1) -> list[StoredConversation]:
        """All conversations, the one used last first. limit -1 is all."""
        rows = self.database.query(
            f"{_SELECT} WHERE deleted IS NULL ORDER BY updated DESC, rowid DESC LIMIT ?", limit
        )
        return [conversation_of(row) for row in rows]

    def rename(self, id: str, title: str) -> StoredConversation:
        """Give it a title of one line; an empty one goes back to the title made of its first message."""
        with self.database.write():
            text = title_of(clean(title))
            automatic = not text
            if automatic:
                first = self.database.query(
                    "SELECT text FROM message WHERE conversation_id = ? AND role = 'user' "
                    "ORDER BY id LIMIT 1",
                    id,
                )
                text = title_of(first[0]["text"]) if first else ""
            self._update(id, "title = ?, title_auto = ?", text, automatic)
            return self.conversation(id)

    def set_model(self, id: str, model: str) -> None:
        """Note the model it goes on with."""
        self._update(id, "model = ?", clean(model))

    def set_system(self, id: str, system: str) -> None:
        """Set its system prompt."""
        self._update(id, "system = ?", clean(system))

    def set_params(self, id: str, params: Mapping[str, Any]) -> None:
        """Set its own sampling settings, as JSON values."""
        self._update(id, "params = ?", clean(json.dumps(dict(params))))

    def touch(self, id: str) -> None:
        """It was used now."""
        with self.database.write() as db:
            now = self.clock()
            none_later(db, now)
            self._update(id, "updated = ?", now)

    def set_unread(self, id: str, unread: bool) -> None:
        """Note whether something in it was not seen yet."""
        self._update(id, "unread = ?", unread)

    def delete(self, id: str) -> None:
        """Take it out of all lists. `undelete` brings it back for a week; then it goes for good."""
        self._update(id, "deleted = ?", self.clock())

    def undelete(self, id: str | None = None) -> StoredConversation:
        """Bring back a deleted conversation, the one deleted last if no id is given. NotFoundError."""
        with self.database.write() as db:
            rows = self.database.query(
                "SELECT id FROM conversation WHERE deleted IS NOT NULL AND (?1 IS NULL OR id = ?1) "
                "ORDER BY deleted DESC LIMIT 1",
                id,
            )
            if not rows:
                raise NotFoundError(
                    "there is no deleted conversation" + (f" {id!r}" if id is not None else "")
                )
            name = str(rows[0]["id"])
            db.execute("UPDATE conversation SET deleted = NULL WHERE id = ?", (name,))
            return self.conversation(name)

    def purge(self) -> None:
        """Remove for good what was deleted more than a week ago."""
        old = (self.clock() - _KEEP_DELETED_S,)
        if self.database.query("SELECT 1 FROM conversation WHERE deleted < ? LIMIT 1", *old):
            with self.database.write() as db:
                db.execute("DELETE FROM conversation WHERE deleted < ?", old)

    def purge_deleted(self) -> int:
        """Remove all deleted conversations for good, and every trace of them in the file; how many.

        StoreError: they are gone, but traces may be left.
        """
        with self.database.write() as db:
            done = db.execute("DELETE FROM conversation WHERE deleted IS NOT NULL").rowcount
        self.database.rewrite()  # also for what was deleted before, by whatever version
        return done

    def _insert(
        self, name: str, title: str, model: str, system: str, params: Mapping[str, Any], forked: str | None
    ) -> bool:
        now = self.clock()
        with self.database.write() as db:
            none_later(db, now)
            done = db.execute(
                "INSERT OR IGNORE INTO conversation"
                "(id, title, title_auto, model, system, params, forked_from, created, updated) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    name,
                    title_of(clean(title)),
                    not title,
                    clean(model),
                    clean(system),
                    clean(json.dumps(dict(params))),
                    forked,
                    now,
                    now,
                ),
            )
        return done.rowcount == 1

    def _update(self, name: str, change: str, *values: Any) -> None:
        with self.database.write() as db:
            done = db.execute(
                f"UPDATE conversation SET {change} WHERE id = ? AND deleted IS NULL", (*values, clean(name))
            )
            if done.rowcount != 1:
                raise NotFoundError(f"there is no conversation {name!r}")


def none_later(db: sqlite3.Connection, now: float) -> None:
    """No conversation was used later than now: where one says so the clock was wrong then, and has been set
    back. What is used now has to be the one used last.
    """
    db.execute("UPDATE conversation SET updated = ? WHERE updated > ?", (now - _MOMENT_S, now))


def checked_id(name: str) -> str:
    """The name, if a conversation can have it as its id. ConversationIdError."""
    if not 0 < len(name) <= 100 or not name.isprintable() or any(c.isspace() for c in name) or name[0] == "-":
        raise ConversationIdError(
            "a conversation's id has 1 to 100 characters, no blanks, and does not begin with '-'; "
            f"{name[:120]!r} is none"
        )
    return name
