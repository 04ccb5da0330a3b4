"""Other windows and programs with the same database: what they write appears in the conversations here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import UserError
from ...store import Conversation, NotFoundError, Store, StoredMessage
from .conversation import Chat
from .listener import Listener
from .store_thread import History

if TYPE_CHECKING:
    from .collection import Chats

log = logging.getLogger(__name__)

ADDED = "what was added in another window is here now"


class Windows:
    """Looks at what others have written since the last time; a conversation that is busy is left alone."""

    def __init__(self, chats: Chats, history: History, listener: Listener) -> None:
        self._chats = chats
        self._history = history
        self._listener = listener
        self._version = 0  # of the database, as of the last look
        self._looking = False

    def all(self, store: Store) -> Sequence[Conversation]:
        """The conversations as they are now."""
        self._version = store.database.version()
        return store.list_conversations()

    async def refresh(self) -> None:
        """Take over what was written since the last time."""
        if self._looking:
            return
        self._looking, changes = True, self._chats.changes
        try:
            rows = await self._history.call(self._changed)
            if rows is not None and changes == self._chats.changes:
                await self._merge(rows)
            elif rows is not None:
                self._version = 0  # they may be older than what was changed here meanwhile
        except (UserError, OSError) as error:  # it is said where something is wanted
            log.warning("%s", error)
        finally:
            self._looking = False

    def _changed(self, store: Store) -> Sequence[Conversation] | None:
        """The conversations; None if nobody else has written."""
        elsewhere = any(chat.ending == "streaming" and not chat.busy for chat in self._chats.all)
        died = store.recover() if elsewhere else 0
        return self.all(store) if died or store.database.version() != self._version else None

    async def read_again(self, chat: Chat) -> None:
        """Take over what another process has written in a conversation. NotFoundError."""
        if (id := chat.id) is None:
            raise NotFoundError("this conversation is not stored yet")
        row, tree = await self._history.call(lambda store: (store.conversation(id), store.tree(id)))
        _replant(chat, tree, row.leaf_id)
        self._listener.chat_changed(chat)

    async def _merge(self, rows: Sequence[Conversation]) -> None:
        known = {chat.id: chat for chat in self._chats.all if chat.id is not None}
        for row in reversed(rows):
            chat = known.pop(row.id, None)
            if chat is None:
                self._chats.all.insert(0, Chat(row, unread=row.unread))
            else:
                await self._take(chat, row)
        for chat in known.values():
            if not chat.busy:
                self._gone(chat)
        self._listener.chats_changed()

    async def _take(self, chat: Chat, row: Conversation) -> None:
        """A conversation as another window may have left it."""
        if chat.busy or chat.held or chat.unfinished:
            self._version = 0  # looked at again when it is at rest
            return
        before, chat.conversation = chat.conversation, replace(row, leaf_id=chat.leaf_id)
        shown = chat is self._chats.shown
        if not shown:
            chat.unread = row.unread
        if chat.tree is None:
            chat.leaf_id = row.leaf_id
            return
        added = row.messages - len(chat.tree)
        grows = any(message.status == "streaming" for message in chat.tree.values())
        if not added and not grows and row.updated == before.updated:
            return
        if not shown:
            chat.tree, chat.leaf_id, chat.news = None, row.leaf_id, added > 0
            return
        tree = await self._history.call(lambda store: store.tree(row.id))
        if chat.busy:
            return
        _replant(chat, tree, row.leaf_id)
        if added > 0:
            self._listener.notify_user(ADDED)
        self._listener.chat_changed(chat)

    def _gone(self, chat: Chat) -> None:
        """A conversation was deleted in another window."""
        if chat is not self._chats.shown and not chat.unsent.strip():
            self._chats.remove(chat)
        elif not chat.gone:
            chat.gone = True
            self._listener.notify_user(
                f"{chat.title}: deleted in another window; /undelete brings back what was deleted last"
            )


def _replant(chat: Chat, tree: Sequence[StoredMessage], leaf: int | None) -> None:
    """All messages of a conversation, and its leaf, as they are stored now."""
    chat.tree = {message.id: message for message in tree}
    on_the_way = chat.leaf_id in (None, *(message.id for message in chat.branch(leaf)))
    if on_the_way or chat.leaf_id not in chat.tree:
        chat.leaf_id = leaf  # it goes on from what is shown
