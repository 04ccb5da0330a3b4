"""All conversations: listed, begun, opened, renamed, copied, deleted, brought back. Knows no widgets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from ...errors import UserError
from ...store import (
    Conversation,
    NotFoundError,
    Store,
    StoredMessage,
    leave_draft,
    save_draft,
)
from .conversation import HELD, Chat, unstored
from .listener import Listener
from .other_windows import ADDED, Windows
from .saving import Saving
from .store_thread import History
from .unsent import Unsent

log = logging.getLogger(__name__)

T = TypeVar("T")


def stored(chat: Chat) -> str:
    """Its id in the store. NotFoundError: it has none yet."""
    if chat.id is None:
        raise NotFoundError("this conversation is not stored yet")
    return chat.id


class Chats:
    """All conversations, the one used last first. `shown` is the one on screen."""

    def __init__(
        self,
        history: History,
        listener: Listener,
        *,
        system: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """system, params: of new conversations, as given on the command line."""
        self.all: list[Chat] = []
        self.shown: Chat | None = None
        self.saving = Saving(history, listener)
        self._history = history
        self._listener = listener
        self._new = unstored(system, params)
        self.changes = 0  # so many were made here
        self.unsent = Unsent(history, self.saving)
        self.windows = Windows(self, history, listener)

    async def load(self) -> None:
        """Read the list of conversations, and what was typed in none of them."""
        for row in await self._call(self.windows.all):
            if self.find(row.id) is None:  # one may have been begun meanwhile
                self.all.append(Chat(row, unread=row.unread))
        for draft in await self.unsent.left_outside():
            typed = Chat(self._new, tree={}, key=draft.key, kept=draft.text, draft=draft.text)
            self.all.insert(0, typed)
        self._listener.chats_changed()

    def _call(self, function: Callable[[Store], T]) -> asyncio.Future[T]:
        """A call on the store that changes conversations."""
        self.changes += 1
        return self._history.call(function)

    def remove(self, chat: Chat) -> None:
        """Take one out of the list in which nothing is typed any more."""
        self.all.remove(chat)
        self.unsent.keep([chat])

    def find(self, id: str) -> Chat | None:
        """The conversation with this id."""
        return next((chat for chat in self.all if chat.id == id), None)

    def new(self) -> Chat:
        """A conversation that is stored with its first message; the one that has none yet, if there is."""
        chat = next((chat for chat in self.all if self._untouched(chat)), None)
        if chat is None:
            chat = Chat(self._new, tree={})
            self.all.insert(0, chat)
            self._listener.chats_changed()
        return chat

    def _untouched(self, chat: Chat) -> bool:
        """Whether nothing would be lost without it."""
        typed = chat.draft or chat.preparing or chat.busy or chat.error
        return not typed and replace(chat.conversation, model="") == self._new

    def _superfluous(self, chat: Chat) -> bool:
        return self._untouched(chat) or (chat.gone and not chat.busy and not chat.unsent.strip())

    async def show(self, chat: Chat) -> str:
        """Put a conversation on screen, as all windows have left it.

        What was typed there in a window that is closed, and not sent.
        """
        before, self.shown = self.shown, chat
        self.set_unread(chat, False)
        if before is not None and before is not chat and before in self.all and self._superfluous(before):
            self.remove(before)
        self._listener.chats_changed()
        if chat.tree is not None:
            self._listener.chat_changed(chat)
        await self.windows.refresh()
        await self.read(chat)
        left = await self.unsent.left_in(chat)
        if chat.news:
            chat.news = False
            self._listener.notify_user(ADDED)
        if self.shown is chat:
            self._listener.chat_changed(chat)
        return left

    async def read(self, chat: Chat) -> None:
        """Read a conversation's messages. What cannot be read is said in it."""
        if chat.tree is None and (id := chat.id) is not None:

            def read(store: Store) -> list[StoredMessage]:
                if store.notice is None:
                    store.recover()  # replies of programs that have died meanwhile
                return store.tree(id)

            try:
                tree = await self._history.call(read)
            except (UserError, OSError) as error:
                chat.error = str(error)
                return
            if chat.tree is None:
                chat.tree = {message.id: message for message in tree}

    def set_unread(self, chat: Chat, unread: bool) -> None:
        """Note whether there is something in it that was not seen."""
        if chat.unread is not unread:
            chat.unread = unread
            if (id := chat.id) is not None and not chat.gone:
                self.changes += 1
                self._history.post(lambda store: store.set_unread(id, unread))

    async def rename(self, chat: Chat, title: str) -> None:
        """Give it another title; an empty one is made of its first message. NotFoundError."""
        id = stored(chat)
        row = await self._call(lambda store: store.rename(id, title))
        chat.conversation = replace(chat.conversation, title=row.title, title_auto=row.title_auto)
        self._listener.chats_changed()

    async def delete(self, chat: Chat) -> None:
        """Take it out of the list; `undelete` brings it back, with what was typed there."""
        id, text = chat.id, chat.unsent

        def write(store: Store) -> None:
            with store.database.write():
                save_draft(store, chat.key, id, text if id is not None else "")
                leave_draft(store, chat.key)
                if id is not None:
                    with suppress(NotFoundError):  # another window was faster
                        store.delete(id)

        await self._call(write)
        if chat in self.all:
            self.all.remove(chat)
        self._listener.chats_changed()

    async def undelete(self) -> Chat:
        """Bring back the conversation deleted last. NotFoundError."""
        row = await self._call(lambda store: store.undelete())
        if (found := self.find(row.id)) is None:
            return self._add(row)
        found.gone = False
        return found

    async def fork(self, chat: Chat, message_id: int | None = None) -> Chat:
        """A new conversation with a copy of the branch up to a message."""
        id = stored(chat)
        return await self.add(lambda store: store.fork(id, message_id))

    async def add(self, make: Callable[[Store], Conversation]) -> Chat:
        """A conversation that `make` puts into the store."""
        return self._add(await self._call(make))

    async def add_all(self, make: Callable[[Store], Sequence[Conversation]]) -> list[Chat]:
        """Conversations that `make` puts into the store; the first one is on top of the list."""
        rows = await self._call(make)
        return [self._add(row) for row in reversed(rows)][::-1]

    async def purge(self) -> int:
        """Remove all deleted conversations for good; how many. StoreError: traces of them may be left."""
        return await self._call(lambda store: store.purge_deleted())

    def _add(self, row: Conversation) -> Chat:
        chat = Chat(row)
        self.all.insert(0, chat)
        self._listener.chats_changed()
        return chat

    def to_top(self, chat: Chat) -> None:
        """It was used last."""
        self.all.sort(key=lambda other: other is not chat)  # stable
        self._listener.chats_changed()

    async def set_model(self, chat: Chat, model: str) -> None:
        """Set the name or path of the model that it goes on with."""
        chat.conversation = replace(chat.conversation, model=model)
        if (id := chat.id) is not None:
            await self._call(lambda store: store.set_model(id, model))
        self._listener.chat_changed(chat)

    async def set_system(self, chat: Chat, system: str) -> None:
        """Set its system prompt."""
        chat.conversation = replace(chat.conversation, system=system)
        if (id := chat.id) is not None:
            await self._call(lambda store: store.set_system(id, system))
        self._listener.chat_changed(chat)

    async def set_params(self, chat: Chat, params: Mapping[str, Any]) -> None:
        """Set its own sampling settings; those of the command line are among them, or hold no longer."""
        chat.given = {}
        chat.conversation = replace(chat.conversation, params=dict(params))
        if (id := chat.id) is not None:
            await self._call(lambda store: store.set_params(id, params))
        self._listener.chat_changed(chat)

    async def select(self, chat: Chat, message_id: int) -> None:
        """Show the branch through this message."""
        chat.leaf_id = chat.leaf_below(message_id)
        if chat.leaf_id is not None and chat.leaf_id < HELD and not chat.gone:
            await self._call(lambda store: store.select(message_id))
        self._listener.chat_changed(chat)

    async def commit(self, chat: Chat, text: str, model: str) -> StoredMessage:
        """Store what the user said, below what is shown; with the first message the conversation, too.

        NotFoundError: another window has deleted the conversation.
        """
        before = chat.conversation
        self.changes += 1
        message, row, tree = await self.saving.add(chat, text, model)
        now, chat.conversation = chat.conversation, row
        if now.model != before.model:  # set while the first message was being stored
            await self.set_model(chat, now.model)
        if now.system != before.system:
            await self.set_system(chat, now.system)
        if now.params != before.params:
            await self.set_params(chat, now.params)
        if tree:
            chat.tree = {each.id: each for each in tree}
        chat.put(message)
        self.to_top(chat)
        self._listener.chat_changed(chat)
        return message
