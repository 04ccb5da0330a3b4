"""All conversations: listed, begun, opened, renamed, copied, deleted, brought back. Knows no widgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..store import Conversation, NotFoundError, Store, StoredMessage
from .chat import Chat, unstored
from .history import History
from .listener import Listener


def stored(chat: Chat) -> str:
    """Its id in the store. NotFoundError: it has none yet."""
    if chat.id is None:
        raise NotFoundError("this conversation has no message yet")
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
        self._history = history
        self._listener = listener
        self._new = unstored(system, params)

    async def load(self) -> None:
        """Read the list of conversations."""
        rows = await self._history.call(lambda store: store.list_conversations())
        for row in rows:
            if self.find(row.id) is None:  # one may have been begun meanwhile
                self.all.append(Chat(row))
        self._listener.chats_changed()

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

    async def show(self, chat: Chat) -> None:
        """Put a conversation on screen, reading its messages if it was not read yet."""
        before, self.shown = self.shown, chat
        chat.unread = False
        if before is not None and before is not chat and before in self.all and self._untouched(before):
            self.all.remove(before)
        await self.read(chat)
        if self.shown is chat:
            self._listener.chat_changed(chat)
            self._listener.chats_changed()

    async def read(self, chat: Chat) -> None:
        """Read a conversation's messages."""
        if chat.tree is None and (id := chat.id) is not None:
            tree = await self._history.call(lambda store: store.tree(id))
            if chat.tree is None:
                chat.tree = {message.id: message for message in tree}

    async def rename(self, chat: Chat, title: str) -> None:
        """Give it another title; an empty one is made of its first message. NotFoundError."""
        id = stored(chat)
        row = await self._history.call(lambda store: store.rename(id, title))
        chat.conversation = replace(chat.conversation, title=row.title, title_auto=row.title_auto)
        self._listener.chats_changed()

    async def delete(self, chat: Chat) -> None:
        """Take it out of the list; `undelete` brings it back."""
        if (id := chat.id) is not None:
            await self._history.call(lambda store: store.delete(id))
        if chat in self.all:
            self.all.remove(chat)
        self._listener.chats_changed()

    async def undelete(self) -> Chat:
        """Bring back the conversation deleted last. NotFoundError."""
        row = await self._history.call(lambda store: store.undelete())
        return self.find(row.id) or self._add(row)

    async def fork(self, chat: Chat, message_id: int | None = None) -> Chat:
        """A new conversation with a copy of the branch up to a message."""
        id = stored(chat)
        return await self.add(lambda store: store.fork(id, message_id))

    async def add(self, make: Callable[[Store], Conversation]) -> Chat:
        """A conversation that `make` puts into the store."""
        return self._add(await self._history.call(make))

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
            await self._history.call(lambda store: store.set_model(id, model))
        self._listener.chat_changed(chat)

    async def set_system(self, chat: Chat, system: str) -> None:
        """Set its system prompt."""
        chat.conversation = replace(chat.conversation, system=system)
        if (id := chat.id) is not None:
            await self._history.call(lambda store: store.set_system(id, system))
        self._listener.chat_changed(chat)

    async def set_params(self, chat: Chat, params: Mapping[str, Any]) -> None:
        """Set its own sampling settings; those of the command line are among them, or hold no longer."""
        chat.given = {}
        chat.conversation = replace(chat.conversation, params=dict(params))
        if (id := chat.id) is not None:
            await self._history.call(lambda store: store.set_params(id, params))
        self._listener.chat_changed(chat)

    async def select(self, chat: Chat, message_id: int) -> None:
        """Show the branch through this message."""
        chat.leaf_id = chat.leaf_below(message_id)
        await self._history.call(lambda store: store.select(message_id))
        self._listener.chat_changed(chat)

    async def commit(self, chat: Chat, text: str, model: str) -> StoredMessage:
        """Store what the user said, below what is shown; with the first message the conversation, too."""
        before, known = chat.conversation, len(chat.tree or {})

        def write(store: Store) -> tuple[Conversation, StoredMessage, list[StoredMessage]]:
            with store.database.write():
                id = before.id
                if not id:
                    new = store.create_conversation(model=model, system=before.system, params=before.params)
                    id = new.id
                # Another window may have gone on: its messages stay, on a branch of their own.
                message = store.add_message(id, "user", text, before.leaf_id, model=model)
                row = store.conversation(id)
                return row, message, store.tree(id) if row.messages != known + 1 else []

        row, message, tree = await self._history.call(write)
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
