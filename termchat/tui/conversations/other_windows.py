"""Other windows and programs with the same database: what they write appears in the conversations here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from ...errors import UserError
from ...messages import StoredConversation, StoredMessage
from ...store import Store
from .conversation import Conversation
from .listener import Listener
from .store_thread import StoreThread

log = logging.getLogger(__name__)

ADDED = "what was added in another window is here now"


class InMemory(Protocol):
    """The conversations of this window. changes: so many were made here."""

    all: list[Conversation]
    shown: Conversation | None
    changes: int

    def remove(self, conversation: Conversation) -> None:
        """Take one out in which nothing is typed any more."""


class OtherWindows:
    """Looks at what others have written since the last time; a conversation that is busy is left alone."""

    def __init__(self, conversations: InMemory, store: StoreThread, listener: Listener) -> None:
        self._conversations = conversations
        self._store = store
        self._listener = listener
        self._version = 0  # of the database, as of the last look
        self._looking = False

    def all(self, store: Store) -> Sequence[StoredConversation]:
        """The conversations as they are now."""
        self._version = store.database.version()
        return store.list_conversations()

    async def refresh(self) -> None:
        """Take over what was written since the last time."""
        if self._looking:
            return
        self._looking, changes = True, self._conversations.changes
        try:
            rows = await self._store.call(self._changed)
            if rows is not None and changes == self._conversations.changes:
                await self._merge(rows)
            elif rows is not None:
                self._version = 0  # they may be older than what was changed here meanwhile
        except (UserError, OSError) as error:  # it is said where something is wanted
            log.warning("%s", error)
        finally:
            self._looking = False

    def _changed(self, store: Store) -> Sequence[StoredConversation] | None:
        """The conversations; None if nobody else has written."""
        elsewhere = any(each.ending == "streaming" and not each.busy for each in self._conversations.all)
        died = store.recover() if elsewhere else 0
        return self.all(store) if died or store.database.version() != self._version else None

    async def read_again(self, conversation: Conversation) -> None:
        """Take over what another process has written in a conversation. NotFoundError."""
        id = conversation.stored_id
        row, tree = await self._store.call(lambda store: (store.conversation(id), store.tree(id)))
        _replant(conversation, tree, row.leaf_id)
        self._listener.conversation_changed(conversation)

    async def _merge(self, rows: Sequence[StoredConversation]) -> None:
        known = {each.id: each for each in self._conversations.all if each.id is not None}
        for row in reversed(rows):
            conversation = known.pop(row.id, None)
            if conversation is None:
                self._conversations.all.insert(0, Conversation(row, unread=row.unread))
            else:
                await self._take(conversation, row)
        for conversation in known.values():
            if not conversation.busy:
                self._gone(conversation)
        self._listener.conversations_changed()

    async def _take(self, conversation: Conversation, row: StoredConversation) -> None:
        """A conversation as another window may have left it."""
        if conversation.busy or conversation.held or conversation.unfinished:
            self._version = 0  # looked at again when it is at rest
            return
        before, conversation.row = conversation.row, replace(row, leaf_id=conversation.leaf_id)
        shown = conversation is self._conversations.shown
        if not shown:
            conversation.unread = row.unread
        if conversation.tree is None:
            conversation.leaf_id = row.leaf_id
            return
        added = row.messages - len(conversation.tree)
        grows = any(message.status == "streaming" for message in conversation.tree.values())
        if not added and not grows and row.updated == before.updated:
            return
        if not shown:
            conversation.tree, conversation.leaf_id, conversation.news = None, row.leaf_id, added > 0
            return
        tree = await self._store.call(lambda store: store.tree(row.id))
        if conversation.busy:
            return
        _replant(conversation, tree, row.leaf_id)
        if added > 0:
            self._listener.notify_user(ADDED)
        self._listener.conversation_changed(conversation)

    def _gone(self, conversation: Conversation) -> None:
        """A conversation was deleted in another window."""
        if conversation is not self._conversations.shown and not conversation.unsent.strip():
            self._conversations.remove(conversation)
        elif not conversation.gone:
            conversation.gone = True
            self._listener.notify_user(
                f"{conversation.title}: deleted in another window; "
                "/undelete brings back what was deleted last"
            )


def _replant(conversation: Conversation, tree: Sequence[StoredMessage], leaf: int | None) -> None:
    """All messages of a conversation, and its leaf, as they are stored now."""
    conversation.tree = {message.id: message for message in tree}
    on_the_way = conversation.leaf_id in (None, *(message.id for message in conversation.branch(leaf)))
    if on_the_way or conversation.leaf_id not in conversation.tree:
        conversation.leaf_id = leaf  # it goes on from what is shown
