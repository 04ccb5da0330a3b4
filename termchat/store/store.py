"""The store: conversations as trees of messages, and the replies that grow in them.

Siblings are alternatives: an edited message, a regenerated answer. Nothing is overwritten; the branch shown
is the way from the root to the conversation's leaf.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ..messages import ROLES, Conversation, Role, StoredMessage
from .conversations import ConversationBusyError, Conversations, NotFoundError
from .database import Database, StoreDamagedError, StoreError, StoreUnavailableError
from .reply_writer import FLUSH_SECONDS, ReplyWriter
from .values import clean, message_of, title_of
from .writers import Writer, is_alive, sweep

log = logging.getLogger(__name__)


class BegunTurn(NamedTuple):
    """A question that is stored, and the reply that will be its answer. branch: the messages above it."""

    conversation: Conversation
    branch: list[StoredMessage]
    question: StoredMessage
    reply: ReplyWriter


class Store(Conversations):
    """All conversations of this user. Methods may be called from any thread, and block until they are done.

    notice: why nothing can be written, None if all is well. damage: what could not be read, so far.
    """

    damage: str | None = None

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.time, busy_timeout: float = 15.0
    ) -> None:
        """Open or create the database. StoreError, PathError: it cannot be used; go on without saving."""
        super().__init__(Database(path, busy_timeout=busy_timeout), clock)
        self._writers = self.database.path.with_name(self.database.path.name + "-writers")
        self._writer = Writer(self._writers)
        if self.notice is None:
            with suppress(StoreUnavailableError):  # the next start does it
                self.recover()
                self.purge()

    @property
    def writer(self) -> str:
        """The name that marks what is being written through this store. PathError."""
        return self._writer.name

    def is_alive(self, writer: str) -> bool:
        """Whether the store of that name is still open, in whatever process."""
        return is_alive(self._writers, writer)

    @property
    def notice(self) -> str | None:
        """Why the store is read-only."""
        return self.database.notice

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database. Replies that are still streaming count as interrupted from now on."""
        self._writer.close()
        self.database.close()

    def recover(self) -> int:
        """Mark the unfinished replies of processes that have died as interrupted; how many there were."""
        dead = self._dead()
        if dead:
            with self.database.write() as db:
                dead = self._dead()  # another process may have been faster
                for message_id, empty in dead:
                    if empty:
                        self.drop_reply(message_id)
                    else:
                        db.execute(
                            "UPDATE message SET status = 'interrupted', writer = NULL WHERE id = ?",
                            (message_id,),
                        )
        sweep(self._writers)
        return len(dead)

    def _dead(self) -> list[tuple[int, bool]]:
        rows = self.database.query(
            "SELECT id, writer, text || thinking = '' AS empty FROM message WHERE status = 'streaming'"
        )
        return [(row["id"], row["empty"]) for row in rows if not self.is_alive(str(row["writer"]))]

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
        known = {message.id: message for message in self.tree(conversation_id)}
        branch: list[StoredMessage] = []
        while leaf_id in known:  # each message once, so that a damaged database cannot lead in a circle
            message = known.pop(leaf_id)
            branch.append(message)
            leaf_id = message.parent_id
        return branch[::-1]

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
            leaf = self._newest_leaf(message.conversation_id, message_id)
            db.execute("UPDATE conversation SET leaf_id = ? WHERE id = ?", (leaf, message.conversation_id))
        assert leaf is not None
        return leaf

    def add_message(
        self, conversation_id: str, role: Role, text: str, parent_id: int | None = None, model: str = ""
    ) -> StoredMessage:
        """Add a finished message below `parent_id`, or below the leaf; it becomes the leaf.

        It is safely stored when this returns. The first one of the user gives the conversation its title.
        ConversationBusyError: another process is still writing the reply that it would follow.
        """
        with self.database.write():
            conversation = self.conversation(conversation_id)
            parent = conversation.leaf_id if parent_id is None else parent_id
            if parent is not None and self._being_written(conversation, parent):
                self.recover()  # its writer has died
                conversation = self.conversation(conversation_id)
                parent = conversation.leaf_id if parent_id is None else parent_id
            return self._add(conversation, role, clean(text), parent, model)

    def _being_written(self, conversation: Conversation, message_id: int) -> bool:
        """Whether it is a reply that a dead process left unfinished. ConversationBusyError: a living one."""
        rows = self.database.query(
            "SELECT writer FROM message WHERE id = ? AND status = 'streaming'", message_id
        )
        if not rows or self._writer.is_mine(str(rows[0]["writer"])):
            return False
        if is_alive(self._writers, str(rows[0]["writer"])):
            raise ConversationBusyError(conversation.id, message_id)
        return True

    def begin_turn(
        self, conversation_id: str | None, text: str, *, model: str = "", system: str | None = None
    ) -> BegunTurn:
        """Add what the user said below the leaf, and begin the answer to it, in one step.

        conversation_id: created if new; None draws one. system: None leaves the system prompt as it is.
        What is read here is what the reply stands below, whatever other processes do at the same time.
        ConversationBusyError: one of them is answering there.
        """
        with self.database.write():
            if conversation_id is None:
                conversation = self.create_conversation(model=model, system=system or "")
            else:
                conversation = self.get_or_create(conversation_id, model=model, system=system or "")
            if system is not None and clean(system) != conversation.system:
                self.set_system(conversation.id, system)
            question = self.add_message(conversation.id, "user", text, model=model)
            branch = self.path(conversation.id, question.parent_id) if question.parent_id is not None else []
            reply = self.begin_reply(conversation.id, question.id, model=model)
            return BegunTurn(self.conversation(conversation.id), branch, question, reply)

    def take_back(self, question_id: int, reply: ReplyWriter) -> None:
        """Undo `begin_turn`: the message, its answer without a word, and a conversation that has no other."""
        with self.database.write():
            question = self.message(question_id)
            reply.finish("interrupted")
            self.drop_reply(question_id)
            if not self.conversation(question.conversation_id).messages:
                self.delete(question.conversation_id)

    def edit(self, message_id: int, text: str) -> StoredMessage:
        """A new version of a message, as its sibling; what followed the old one stays with the old one."""
        with self.database.write():
            old = self.message(message_id)
            conversation = self.conversation(old.conversation_id)
            return self._add(conversation, old.role, clean(text), old.parent_id, old.model)

    def begin_reply(
        self,
        conversation_id: str,
        parent_id: int | None = None,
        model: str = "",
        flush_every: float = FLUSH_SECONDS,
    ) -> ReplyWriter:
        """Begin an answer to `parent_id`, or to the leaf; it becomes the leaf and is written as it grows."""
        with self.database.write():
            conversation = self.conversation(conversation_id)
            parent = conversation.leaf_id if parent_id is None else parent_id
            reply = self._add(conversation, "assistant", "", parent, model, writer=self._writer.name)
        return ReplyWriter(self, reply, flush_every)

    def regenerate(self, message_id: int, model: str = "", flush_every: float = FLUSH_SECONDS) -> ReplyWriter:
        """Begin another answer beside this one. StoreError: it is no answer."""
        old = self.message(message_id)
        if old.role != "assistant" or old.parent_id is None:
            raise StoreError(f"message {message_id} is not an answer, so it cannot be made again")
        return self.begin_reply(old.conversation_id, old.parent_id, model or old.model, flush_every)

    def resume_reply(self, message_id: int, flush_every: float = FLUSH_SECONDS) -> ReplyWriter:
        """Go on writing an answer that was interrupted. StoreError: it is no answer, or is being written."""
        with self.database.write() as db:
            done = db.execute(
                "UPDATE message SET status = 'streaming', writer = ?, finish_reason = NULL "
                "WHERE id = ? AND role = 'assistant' AND status <> 'streaming'",
                (self._writer.name, message_id),
            )
            if done.rowcount != 1:
                raise StoreError(f"message {message_id} is not an answer that could go on")
            return ReplyWriter(self, self.message(message_id), flush_every)

    def drop_reply(self, message_id: int) -> None:
        """Remove an answer without a word; the branch shown goes back to what was there before it."""
        with self.database.write() as db:
            reply = self.message(message_id)
            if self.database.query("SELECT 1 FROM message WHERE parent_id = ? LIMIT 1", message_id):
                return
            db.execute("DELETE FROM message WHERE id = ?", (message_id,))
            leaf = self._newest_leaf(reply.conversation_id, reply.parent_id)
            db.execute(
                "UPDATE conversation SET leaf_id = ? WHERE id = ? AND leaf_id = ?",
                (leaf, reply.conversation_id, message_id),
            )

    def fork(self, conversation_id: str, message_id: int | None = None) -> Conversation:
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
        conversation: Conversation,
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

    def _newest_leaf(self, conversation_id: str, message_id: int | None) -> int | None:
        """Down from a message (None: from above the roots) to a leaf, taking the newest child each time."""
        newest: dict[int | None, int] = {}
        for message in self.tree(conversation_id):
            newest[message.parent_id] = message.id
        while message_id in newest:
            message_id = newest.pop(message_id)
        return message_id


def _touch(
    db: sqlite3.Connection, conversation: Conversation, leaf: int, now: float, model: str, text: str
) -> None:
    """A message was added: it is the leaf, the conversation was used now, and may get its title."""
    title = conversation.title or (title_of(text) if conversation.title_auto else "")
    db.execute(
        "UPDATE conversation SET leaf_id = ?, updated = ?, title = ?, model = ? WHERE id = ?",
        (leaf, now, title, clean(model) or conversation.model, conversation.id),
    )
