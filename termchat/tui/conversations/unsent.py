"""What was typed and not sent, kept by the store while it is typed: for this window and those after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from ...errors import UserError
from ...store import Draft, save_draft, take_draft, take_drafts
from .conversation import Conversation
from .saving import Saving
from .store_thread import StoreThread


class Unsent:
    """Hands the unsent texts of conversations to the store, and takes over what closed windows left."""

    def __init__(self, store: StoreThread, saving: Saving) -> None:
        self._store = store
        self._saving = saving
        self._keeping: set[Conversation] = set()

    def keep(self, conversations: Iterable[Conversation], *, last: bool = False) -> None:
        """Have the store keep what has changed. last: the program ends."""
        for conversation in conversations:
            if conversation.unsent != conversation.kept and (last or conversation not in self._keeping):
                self._keep(conversation, conversation.unsent)

    def _keep(self, conversation: Conversation, text: str) -> None:
        self._keeping.add(conversation)
        write = partial(save_draft, key=conversation.key, conversation_id=conversation.id, text=text)
        self._store.call(write).add_done_callback(partial(self._kept, conversation, text))

    def _kept(self, conversation: Conversation, text: str, done: asyncio.Future[None]) -> None:
        self._keeping.discard(conversation)
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            conversation.kept = text
            self._saving.well()
        elif isinstance(error, Exception):
            self._saving.failed(error)

    async def left_outside(self) -> list[Draft]:
        """What closed windows left in conversations without a message."""
        return await self._store.call(take_drafts)

    async def left_in(self, conversation: Conversation) -> str:
        """What closed windows left in a conversation."""
        if (id := conversation.id) is None:
            return ""
        try:
            return await self._store.call(lambda store: take_draft(store, id, conversation.key))
        except (UserError, OSError) as error:
            self._saving.failed(error)
            return ""
