"""All conversations: listed, begun, opened, renamed, copied, deleted, brought back. Knows no widgets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from ...errors import UserError
from ...messages import StoredConversation, StoredMessage
from ...store import NotFoundError, Store, leave_draft, save_draft
from .conversation import HELD, Conversation, unstored
from .listener import Listener
from .other_windows import ADDED, OtherWindows
from .saving import Saving
from .store_thread import StoreThread
from .unsent import Unsent

log = logging.getLogger(__name__)

T = TypeVar("T")


class Conversations:
    """All conversations, the one used last first. `shown` is the one on screen."""

    def __init__(
        self,
        store: StoreThread,
        listener: Listener,
        *,
        system: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """system, params: of new conversations, as given on the command line."""
        self.all: list[Conversation] = []
        self.shown: Conversation | None = None
        self.saving = Saving(store, listener)
        self._store = store
        self._listener = listener
        self._new = unstored(system, params)
        self.changes = 0  # so many were made here
        self.unsent = Unsent(store, self.saving)
        self.windows = OtherWindows(self, store, listener)

    async def load(self) -> None:
        """Read the list of conversations, and what was typed in none of them."""
        for row in await self._call(self.windows.all):
            if self.find(row.id) is None:  # one may have been begun meanwhile
                self.all.append(Conversation(row, unread=row.unread))
        for draft in await self.unsent.left_outside():
            typed = Conversation(self._new, tree={}, key=draft.key, kept=draft.text, draft=draft.text)
            self.all.insert(0, typed)
        self._listener.conversations_changed()

    def _call(self, function: Callable[[Store], T]) -> asyncio.Future[T]:
        """A call on the store that changes conversations."""
        self.changes += 1
        return self._store.call(function)

    def remove(self, conversation: Conversation) -> None:
        """Take one out of the list in which nothing is typed any more."""
        self.all.remove(conversation)
        self.unsent.keep([conversation])

    def find(self, id: str) -> Conversation | None:
        """The conversation with this id."""
        return next((conversation for conversation in self.all if conversation.id == id), None)

    def new(self) -> Conversation:
        """A conversation that is stored with its first message; the one that has none yet, if there is."""
        conversation = next((each for each in self.all if self._untouched(each)), None)
        if conversation is None:
            conversation = Conversation(self._new, tree={})
            self.all.insert(0, conversation)
            self._listener.conversations_changed()
        return conversation

    def _untouched(self, conversation: Conversation) -> bool:
        """Whether nothing would be lost without it."""
        typed = conversation.draft or conversation.preparing or conversation.busy or conversation.error
        return not typed and replace(conversation.row, model="") == self._new

    def _superfluous(self, conversation: Conversation) -> bool:
        left = conversation.gone and not conversation.busy and not conversation.unsent.strip()
        return left or self._untouched(conversation)

    async def show(self, conversation: Conversation) -> str:
        """Put a conversation on screen, as all windows have left it.

        What was typed there in a window that is closed, and not sent.
        """
        before, self.shown = self.shown, conversation
        self.set_unread(conversation, False)
        if before in self.all and before is not conversation and self._superfluous(before):
            self.remove(before)
        self._listener.conversations_changed()
        if conversation.tree is not None:
            self._listener.conversation_changed(conversation)
        await self.windows.refresh()
        await self.read(conversation)
        left = await self.unsent.left_in(conversation)
        if conversation.news:
            conversation.news = False
            self._listener.notify_user(ADDED)
        if self.shown is conversation:
            self._listener.conversation_changed(conversation)
        return left

    async def read(self, conversation: Conversation) -> None:
        """Read a conversation's messages. What cannot be read is said in it."""
        if conversation.tree is None and (id := conversation.id) is not None:

            def read(store: Store) -> list[StoredMessage]:
                if store.notice is None:
                    store.recover()  # replies of programs that have died meanwhile
                return store.tree(id)

            try:
                tree = await self._store.call(read)
            except (UserError, OSError) as error:
                conversation.error = str(error)
                return
            if conversation.tree is None:
                conversation.tree = {message.id: message for message in tree}

    def set_unread(self, conversation: Conversation, unread: bool) -> None:
        """Note whether there is something in it that was not seen."""
        if conversation.unread is not unread:
            conversation.unread = unread
            if (id := conversation.id) is not None and not conversation.gone:
                self.changes += 1
                self._store.post(lambda store: store.set_unread(id, unread))

    async def rename(self, conversation: Conversation, title: str) -> None:
        """Give it another title; an empty one is made of its first message. NotFoundError."""
        id = conversation.stored_id
        row = await self._call(lambda store: store.rename(id, title))
        conversation.row = replace(conversation.row, title=row.title, title_auto=row.title_auto)
        self._listener.conversations_changed()

    async def delete(self, conversation: Conversation) -> None:
        """Take it out of the list; `undelete` brings it back, with what was typed there."""
        id, text = conversation.id, conversation.unsent

        def write(store: Store) -> None:
            with store.database.write():
                save_draft(store, conversation.key, id, text if id is not None else "")
                leave_draft(store, conversation.key)
                if id is not None:
                    with suppress(NotFoundError):  # another window was faster
                        store.delete(id)

        before, conversation.gone = conversation.gone, True  # its reply may end while this is done
        try:
            await self._call(write)
        except BaseException:
            conversation.gone = before
            raise
        if conversation in self.all:
            self.all.remove(conversation)
        self._listener.conversations_changed()

    async def undelete(self) -> Conversation:
        """Bring back the conversation deleted last. NotFoundError."""
        row = await self._call(lambda store: store.undelete())
        if (found := self.find(row.id)) is None:
            return self._add(row)
        found.gone = False
        return found

    async def fork(self, conversation: Conversation, message_id: int | None = None) -> Conversation:
        """A new conversation with a copy of the branch up to a message."""
        id = conversation.stored_id
        return await self.add(lambda store: store.fork(id, message_id))

    async def add(self, make: Callable[[Store], StoredConversation]) -> Conversation:
        """A conversation that `make` puts into the store."""
        return self._add(await self._call(make))

    async def add_all(self, make: Callable[[Store], Sequence[StoredConversation]]) -> list[Conversation]:
        """Conversations that `make` puts into the store; the first one is on top of the list."""
        rows = await self._call(make)
        return [self._add(row) for row in reversed(rows)][::-1]

    async def purge(self) -> int:
        """Remove all deleted conversations for good; how many. StoreError: traces of them may be left."""
        return await self._call(lambda store: store.purge_deleted())

    def _add(self, row: StoredConversation) -> Conversation:
        conversation = Conversation(row)
        self.all.insert(0, conversation)
        self._listener.conversations_changed()
        return conversation

    def to_top(self, conversation: Conversation) -> None:
        """It was used last."""
        self.all.sort(key=lambda other: other is not conversation)  # stable
        self._listener.conversations_changed()

    async def set_model(self, conversation: Conversation, model: str) -> None:
        """Set the name or path of the model that it goes on with."""
        await self._change(conversation, lambda store, id: store.set_model(id, model), model=model)

    async def set_system(self, conversation: Conversation, system: str) -> None:
        """Set its system prompt."""
        await self._change(conversation, lambda store, id: store.set_system(id, system), system=system)

    async def set_params(self, conversation: Conversation, params: Mapping[str, Any]) -> None:
        """Set its own sampling settings; those of the command line are among them, or hold no longer."""
        conversation.given = {}
        await self._change(conversation, lambda store, id: store.set_params(id, params), params=dict(params))

    async def _change(
        self, conversation: Conversation, write: Callable[[Store, str], None], **changed: Any
    ) -> None:
        conversation.row = replace(conversation.row, **changed)
        if (id := conversation.id) is not None:
            await self._call(lambda store: write(store, id))
        self._listener.conversation_changed(conversation)

    async def select(self, conversation: Conversation, message_id: int) -> None:
        """Show the branch through this message."""
        conversation.leaf_id = conversation.leaf_below(message_id)
        if conversation.leaf_id is not None and conversation.leaf_id < HELD and not conversation.gone:
            await self._call(lambda store: store.select(message_id))
        self._listener.conversation_changed(conversation)

    async def commit(self, conversation: Conversation, text: str, model: str) -> StoredMessage:
        """Store what the user said, below what is shown; with the first message the conversation, too.

        NotFoundError: another window has deleted the conversation.
        """
        before = conversation.row
        self.changes += 1
        message, row, tree = await self.saving.add(conversation, text, model)
        now, conversation.row = conversation.row, row
        if now.model != before.model:  # set while the first message was being stored
            await self.set_model(conversation, now.model)
        if now.system != before.system:
            await self.set_system(conversation, now.system)
        if now.params != before.params:
            await self.set_params(conversation, now.params)
        if tree:
            conversation.tree = {each.id: each for each in tree}
        conversation.put(message)
        self.to_top(conversation)
        self._listener.conversation_changed(conversation)
        return message
