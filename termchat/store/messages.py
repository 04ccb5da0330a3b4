"""Messages as trees: read, copied, edited, removed.

Siblings are alternatives: an edited message, a regenerated answer. Nothing is overwritten; the branch shown
is the way from the root to the conversation's leaf.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress

from ..messages import ROLES, Role, StoredConversation, StoredMessage, branch_of, newest_leaf
from .conversations import ConversationTable, none_later
from .errors import NotFoundError, StoreDamagedError, StoreError
from .values import clean, message_of, title_of


class MessageTable(ConversationTable):
    """The conversations of one database with what was said in them.

    damage: what could not be read, so far.
    """

    damage: str | None = None

    def message(self, message_id: int) -> StoredMessage:
        """One message. NotFoundError."""
        rows = self.database.query("SELECT * FROM message WHERE id = ?", message_id)
        if not rows:
            raise NotFoundError(f"there is no message {message_id}")
        return message_of(rows[0])

    def tree(self, conversation_id: str) -> list[StoredMessage]:
        """All messages of a conversation, in the order in which they were made.

        Of a damaged database those that can be read; `damage` says so then.
        """
        name = clean(conversation_id)
        try:
            rows = self.database.query("SELECT * FROM message WHERE conversation_id = ? ORDER BY id", name)
        except StoreDamagedError as error:
            self.damage = str(error)
            rows = self._readable(name)
        return [message_of(row) for row in rows]

    def _readable(self, conversation_id: str) -> list[sqlite3.Row]:
        """One message at a time, found by the index."""
        rows: list[sqlite3.Row] = []
        for row in self.database.query(
            "SELECT id FROM message INDEXED BY message_conversation WHERE conversation_id = ? ORDER BY id",
            conversation_id,
        ):
            with suppress(StoreDamagedError):
                rows += self.database.query("SELECT * FROM message WHERE id = ?", row["id"])
        return rows

    def path(self, conversation_id: str, leaf_id: int | None = None) -> list[StoredMessage]:
        """The branch that ends in `leaf_id`, or in the conversation's own leaf: first message first."""
        if leaf_id is None:
            leaf_id = self.conversation(conversation_id).leaf_id
        return branch_of(self.tree(conversation_id), leaf_id)

    def siblings(self, message_id: int) -> list[int]:
        """The ids of a message and its alternatives, the oldest first."""
        message = self.message(message_id)
        rows = self.database.query(
            "SELECT id FROM message WHERE conversation_id = ? AND parent_id IS ? ORDER BY id",
            message.conversation_id,
            message.parent_id,
        )
        return [int(row["id"]) for row in rows]

    def select(self, message_id: int) -> int:
        """Show the branch that runs through this message; the leaf it ends in."""
        with self.database.write() as db:
            message = self.message(message_id)
            leaf = newest_leaf(self.tree(message.conversation_id), message_id)
            db.execute("UPDATE conversation SET leaf_id = ? WHERE id = ?", (leaf, message.conversation_id))
        assert leaf is not None
        return leaf

    def edit(self, message_id: int, text: str) -> StoredMessage:
        """A new version of a message, as its sibling; what followed the old one stays with the old one."""
        with self.database.write():
            old = self.message(message_id)
            conversation = self.conversation(old.conversation_id)
            return self._add(conversation, old.role, clean(text), old.parent_id, old.model)

    def drop_reply(self, message_id: int) -> None:
        """Remove an answer without a word; the branch shown goes back to what was there before it."""
        with self.database.write() as db:
            reply = self.message(message_id)
            if self.database.query("SELECT 1 FROM message WHERE parent_id = ? LIMIT 1", message_id):
                return
            db.execute("DELETE FROM message WHERE id = ?", (message_id,))
            leaf = newest_leaf(self.tree(reply.conversation_id), reply.parent_id)
            db.execute(
                "UPDATE conversation SET leaf_id = ? WHERE id = ? AND leaf_id = ?",
                (leaf, reply.conversation_id, message_id),
            )

    def fork(self, conversation_id: str, message_id: int | None = None) -> StoredConversation:
        """A new conversation that holds a copy of the branch up to `message_id`, or up to the leaf."""
        with self.database.write():
            old = self.conversation(conversation_id)
            branch = self.path(conversation_id, message_id)
            if message_id is not None and not branch:
                raise NotFoundError(
                    f"there is no message {message_id} in the conversation {conversation_id!r}"
                )
            new = self.create_conversation(
                title=old.title, model=old.model, system=old.system, params=old.params, forked_from=old.id
            )
            parent: int | None = None
            for message in branch:
                parent = self.add_copy(new.id, message, parent)
            return self.conversation(new.id)

    def add_copy(self, conversation_id: str, message: StoredMessage, parent_id: int | None) -> int:
        """Add a copy of a message of another conversation or database below `parent_id`; its new id.

        It becomes the leaf. A reply that streams is interrupted in the copy.
        """
        with self.database.write() as db:
            new = db.execute(
                "INSERT INTO message(conversation_id, parent_id, role, status, text, thinking, model, "
                "finish_reason, metrics, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    conversation_id,
                    parent_id,
                    message.role,
                    "interrupted" if message.status == "streaming" else message.status,
                    clean(message.text),
                    clean(message.thinking),
                    clean(message.model),
                    clean(message.finish_reason or "") or None,
                    clean(json.dumps(dict(message.metrics))),
                    message.created,
                ),
            ).lastrowid
            assert new is not None
            db.execute("UPDATE conversation SET leaf_id = ? WHERE id = ?", (new, conversation_id))
        return new

    def prompts(self, limit: int = 500) -> list[str]:
        """What the user typed, the newest first, each text once."""
        rows = self.database.query(
            "SELECT text FROM message JOIN conversation ON conversation.id = conversation_id "
            "WHERE role = 'user' AND deleted IS NULL GROUP BY text ORDER BY max(message.id) DESC LIMIT ?",
            limit,
        )
        return [str(row["text"]) for row in rows]

    def _add(
        self,
        conversation: StoredConversation,
        role: Role,
        text: str,
        parent_id: int | None,
        model: str,
        writer: str | None = None,
    ) -> StoredMessage:
        if role not in ROLES:
            raise StoreError(f"a message's role is one of {', '.join(ROLES)}, not {role!r}")
        if parent_id is not None and self.message(parent_id).conversation_id != conversation.id:
            raise StoreError(f"message {parent_id} is not in the conversation {conversation.id!r}")
        now = self.clock()
        with self.database.write() as db:
            new = db.execute(
                "INSERT INTO message(conversation_id, parent_id, role, status, text, model, writer, created) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    conversation.id,
                    parent_id,
                    role,
                    "done" if writer is None else "streaming",
                    text,
                    clean(model),
                    writer,
                    now,
                ),
            ).lastrowid
            assert new is not None
            _touch(db, conversation, new, now, model, text if role == "user" else "")
        return self.message(new)


def _touch(
    db: sqlite3.Connection, conversation: StoredConversation, leaf: int, now: float, model: str, text: str
) -> None:
    """A message was added: it is the leaf, the conversation was used now, and may get its title."""
    title = conversation.title or (title_of(text) if conversation.title_auto else "")
    none_later(db, now)
    db.execute(
        "UPDATE conversation SET leaf_id = ?, updated = ?, title = ?, model = ? WHERE id = ?",
        (leaf, now, title, clean(model) or conversation.model, conversation.id),
    )
