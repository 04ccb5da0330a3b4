"""What was typed and not sent, kept by the store while it is typed: for this window and those after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from ...errors import UserError
from ...store import Draft, save_draft, take_draft, take_drafts
from .conversation import Chat
from .saving import Saving
from .store_thread import History


class Unsent:
    """Hands the unsent texts of conversations to the store, and takes over what closed windows left."""

    def __init__(self, history: History, saving: Saving) -> None:
        self._history = history
        self._saving = saving
        self._keeping: set[Chat] = set()

    def keep(self, chats: Iterable[Chat], *, last: bool = False) -> None:
        """Have the store keep what has changed. last: the program ends."""
        for chat in chats:
            if chat.unsent != chat.kept and (last or chat not in self._keeping):
                self._keep(chat, chat.unsent)

    def _keep(self, chat: Chat, text: str) -> None:
        self._keeping.add(chat)
        write = partial(save_draft, key=chat.key, conversation_id=chat.id, text=text)
        self._history.call(write).add_done_callback(partial(self._kept, chat, text))

    def _kept(self, chat: Chat, text: str, done: asyncio.Future[None]) -> None:
        self._keeping.discard(chat)
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            chat.kept = text
            self._saving.well()
        elif isinstance(error, Exception):
            self._saving.failed(error)

    async def left_outside(self) -> list[Draft]:
        """What closed windows left in conversations without a message."""
        return await self._history.call(take_drafts)

    async def left_in(self, chat: Chat) -> str:
        """What closed windows left in a conversation."""
        if (id := chat.id) is None:
            return ""
        try:
            return await self._history.call(lambda store: take_draft(store, id, chat.key))
        except (UserError, OSError) as error:
            self._saving.failed(error)
            return ""
