"""The store: conversations as trees of messages, and the replies that grow in them, whoever else writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ..messages import Role, StoredConversation, StoredMessage
from .database import Database
from .errors import ConversationBusyError, StoreError, StoreUnavailableError
from .messages import MessageTable
from .reply_writer import FLUSH_SECONDS, ReplyWriter
from .values import clean
from .writers import Writer, is_alive, sweep


class BegunTurn(NamedTuple):
    """A question that is stored, and the reply that will be its answer. branch: the messages above it.

    before: the conversation without them; it has no message if it is new.
    """

    conversation: StoredConversation
    before: StoredConversation
    branch: list[StoredMessage]
    question: StoredMessage
    reply: ReplyWriter


class Store(MessageTable):
    """All conversations of this user. Methods may be called from any thread, and block until they are done.

    notice: why nothing can be written, None if all is well.
    """

    def __init__(
        self, path: Path | None, clock: Callable[[], float] = time.time, busy_timeout: float = 15.0
    ) -> None:
        """Open or create the database; None: in memory. StoreError, PathError: it cannot be used."""
        super().__init__(Database(path, busy_timeout=busy_timeout), clock)
        place = self.database.path
        self._writers = place.with_name(f"{place.name}-writers") if path is not None else None
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
        if self._writer.is_mine(writer):
            return True
        return self._writers is not None and is_alive(self._writers, writer)

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
        if self._writers is not None:
            sweep(self._writers)
        return len(dead)

    def _dead(self) -> list[tuple[int, bool]]:
        rows = self.database.query(
            "SELECT id, writer, text || thinking = '' AS empty FROM message WHERE status = 'streaming'"
        )
        return [(row["id"], row["empty"]) for row in rows if not self.is_alive(str(row["writer"]))]

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

    def _being_written(self, conversation: StoredConversation, message_id: int) -> bool:
        """Whether it is a reply that a dead process left unfinished. ConversationBusyError: a living one."""
        rows = self.database.query(
            "SELECT writer FROM message WHERE id = ? AND status = 'streaming'", message_id
        )
        if not rows or self._writer.is_mine(str(rows[0]["writer"])):
            return False
        if self.is_alive(str(rows[0]["writer"])):
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
            before = conversation
            if system is not None and clean(system) != conversation.system:
                self.set_system(conversation.id, system)
            question = self.add_message(conversation.id, "user", text, model=model)
            branch = self.path(conversation.id, question.parent_id) if question.parent_id is not None else []
            reply = self.begin_reply(conversation.id, question.id, model=model)
            return BegunTurn(self.conversation(conversation.id), before, branch, question, reply)

    def take_back(self, turn: BegunTurn) -> None:
        """Undo `begin_turn`: the message, its answer without a word, what it changed of the conversation, and
        one that has no other message.
        """
        begun, before = turn.conversation, turn.before
        with self.database.write() as db:
            turn.reply.finish("interrupted")
            self.drop_reply(turn.question.id)
            if not self.conversation(begun.id).messages:
                self.delete(begun.id)
            else:  # as it was, if nobody else has used it meanwhile
                db.execute(
                    "UPDATE conversation SET updated = ?, model = ?, system = ? WHERE id = ? AND updated = ?",
                    (before.updated, before.model, before.system, begun.id, begun.updated),
                )

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
