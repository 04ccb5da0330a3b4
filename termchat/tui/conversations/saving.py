"""What is said and answered goes into the store; what that cannot take now is held, and stored later.

A full disk, a damaged database or another program's lock never keeps a message from being answered.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...errors import UserError
from ...files import PathError, private_folder
from ...store import (
    Conversation,
    ReplyWriter,
    Role,
    Store,
    StoredMessage,
    StoreUnavailableError,
    document_of,
    export_file,
    save_draft,
)
from ...store.values import title_of
from .conversation import HELD, Chat
from .listener import Listener
from .live_reply import LiveReply
from .store_thread import History

if TYPE_CHECKING:
    from ...messages import Outcome

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""From one try to store what is held to the next."""

UNAVAILABLE = (StoreUnavailableError, PathError, OSError)
"""Errors that are the disk's, not the request's."""


class Saving:
    """Messages and replies on their way to the store."""

    def __init__(self, history: History, listener: Listener) -> None:
        self._history = history
        self._listener = listener
        self._trouble = ""
        self._last = HELD
        self._ids: dict[int, int] = {}  # of messages that were held, as they are in the store
        self._settling = asyncio.Lock()
        self._held: set[Chat] = set()
        self._retry: asyncio.Task[None] | None = None

    async def add(
        self, chat: Chat, text: str, model: str
    ) -> tuple[StoredMessage, Conversation, list[StoredMessage]]:
        """What the user said, below what is shown; with a first message the conversation, too.

        The message; the conversation as it is then; all its messages, if another window has added some.
        What of the chat is still unsent is stored with it.
        """
        await self.settle(chat)
        before, known, unsent, parent = chat.conversation, len(chat.tree or {}), chat.unsent, chat.leaf_id

        def write(store: Store) -> tuple[StoredMessage, Conversation, list[StoredMessage]]:
            with store.database.write():
                id = before.id
                if not id:
                    new = store.create_conversation(model=model, system=before.system, params=before.params)
                    id = new.id
                # Another window may have gone on: its messages stay, on a branch of their own.
                message = store.add_message(id, "user", text, parent, model=model)
                save_draft(store, chat.key, id, unsent)
                row = store.conversation(id)
                return message, row, store.tree(id) if row.messages != known + 1 else []

        if not chat.held:
            try:
                done = await self._history.call(write)
            except UNAVAILABLE as error:
                self.failed(error)
            else:
                chat.kept = unsent
                self.well()
                return done
        message = self._hold(chat, "user", text, parent, model)
        row = replace(chat.conversation, title=chat.conversation.title or title_of(text), leaf_id=message.id)
        return message, row, []

    async def edit(self, chat: Chat, message: StoredMessage, text: str) -> StoredMessage:
        """A new version of a message of the user."""
        unsent = chat.unsent

        def write(store: Store) -> StoredMessage:
            with store.database.write():
                save_draft(store, chat.key, chat.id, unsent)
                return store.edit(message.id, text)

        if message.id < HELD:
            try:
                done = await self._history.call(write)
            except UNAVAILABLE as error:
                self.failed(error)
            else:
                chat.kept = unsent
                self.well()
                return done
        return self._hold(chat, "user", text, message.parent_id, message.model)

    async def begin(
        self, chat: Chat, parent: int, model: str, count: int
    ) -> Sequence[tuple[ReplyWriter | None, StoredMessage]]:
        """Begin answers to a message."""
        id = chat.id

        def write(store: Store) -> Sequence[tuple[ReplyWriter, StoredMessage]]:
            assert id is not None, "its message is stored"
            with store.database.write():
                writers = [store.begin_reply(id, parent, model, flush_every=0) for _ in range(count)]
                return [(writer, store.message(writer.message_id)) for writer in writers]

        if parent < HELD:
            try:
                return await self._history.call(write)
            except UNAVAILABLE as error:
                self.failed(error)
        return [(None, self._hold(chat, "assistant", "", parent, model)) for _ in range(count)]

    async def finish(self, chat: Chat, reply: LiveReply, outcome: Outcome) -> StoredMessage | None:
        """How a reply ended; None if it ended before it had a word, and is gone."""
        assert chat.tree is not None, "its replies are in it"
        row = replace(
            chat.tree[reply.message_id],
            text=reply.text,
            thinking=reply.thinking,
            status=outcome.status,
            finish_reason=outcome.reason,
            metrics=outcome.metrics,
        )
        if reply.writer is None:
            empty = outcome.status == "interrupted" and not (reply.text or reply.thinking)
            return None if empty else row
        finish: Callable[[], StoredMessage | None] = partial(reply.writer.finish, *outcome)
        try:
            done = await self._history.call(lambda store: finish())
        except UNAVAILABLE as error:
            chat.unfinished[reply.message_id] = finish
            self._wait(chat)
            self.failed(error)
            return row
        self.well()
        if done is None and (reply.text or reply.thinking):
            self._listener.notify_user(f"{chat.title}: the conversation was purged elsewhere", error=True)
            return row
        return done

    async def settle(self, chat: Chat) -> bool:
        """Store what of a conversation is held; whether nothing is held any more."""
        async with self._settling:
            return await self._settle(chat)

    def now(self, id: int) -> int:
        """The id of a message, in place of the one that it had while it was held."""
        return self._ids.get(id, id)

    async def _settle(self, chat: Chat) -> bool:
        held, unfinished = chat.held, dict(chat.unfinished)
        if not held and not unfinished:
            return True
        if chat.live:
            return False
        try:
            row, tree, ids = await self._history.call(partial(_write, chat, held, unfinished))
        except UNAVAILABLE as error:
            self.failed(error)
            return False
        except UserError as error:  # deleted for good, for example: there is nowhere to put it
            self._listener.notify_user(f"{chat.title} is not stored: {error}", error=True)
            self._held.discard(chat)
            return False
        for id in unfinished:
            chat.unfinished.pop(id, None)
        self._ids.update(ids)
        if chat.editing is not None:
            chat.editing = replace(chat.editing, id=self.now(chat.editing.id))
        leaf = ids.get(chat.leaf_id or 0, chat.leaf_id)
        chat.conversation = replace(row, leaf_id=leaf)
        chat.tree = {message.id: message for message in tree}
        self._held.discard(chat)
        self.well()
        self._listener.chat_changed(chat)
        return True

    def post_held(self) -> None:
        """Try for the last time, when the program ends."""

        def write(chat: Chat, store: Store) -> None:
            _write(chat, chat.held, chat.unfinished, store)
            self._held.discard(chat)

        for chat in self._held:
            self._history.post(partial(write, chat))

    def rescue(self, folders: Iterable[Path]) -> str:
        """When all is closed: put what is held into a file; a sentence about it. folders: best first."""
        if not self._held:
            return ""
        left = [
            (replace(chat.conversation, id=chat.id or os.urandom(6).hex()), list((chat.tree or {}).values()))
            for chat in self._held
        ]
        for folder in folders:
            path = folder / f"termchat-unsaved-{os.urandom(4).hex()}.json"
            try:
                export_file(private_folder(folder) / path.name, document_of(left, "json"))
            except (UserError, OSError) as error:
                log.warning("%s", error)
            else:
                return f"not everything could be stored; it is in {path}, and /import {path} brings it back"
        return "not everything could be stored, and no file could be written for it"

    def failed(self, error: Exception) -> None:
        """Something could not be stored."""
        if isinstance(error, UNAVAILABLE):
            self._trouble = f"not stored yet, but tried again by itself: {error}"
            self._listener.tell_lasting(self._trouble)
        else:
            self._listener.notify_user(str(error), error=True)

    def well(self) -> None:
        """Something was stored."""
        if self._trouble and not self._held:
            self._trouble = ""
            self._listener.tell_lasting("")

    def _hold(self, chat: Chat, role: Role, text: str, parent: int | None, model: str) -> StoredMessage:
        self._last += 1
        self._wait(chat)
        status: Literal["done", "streaming"] = "streaming" if role == "assistant" else "done"
        return StoredMessage(
            id=self._last,
            conversation_id=chat.conversation.id,
            parent_id=parent,
            role=role,
            status=status,
            text=text,
            thinking="",
            model=model,
            finish_reason=None,
            metrics={},
            created=time.time(),
        )

    def _wait(self, chat: Chat) -> None:
        self._held.add(chat)
        if self._retry is None or self._retry.done():
            self._retry = asyncio.create_task(self._settle_later())

    async def _settle_later(self) -> None:
        while self._held:
            await asyncio.sleep(RETRY_SECONDS)
            for chat in [chat for chat in self._held if not chat.busy]:
                await self.settle(chat)


def _write(
    chat: Chat, held: Sequence[StoredMessage], unfinished: Mapping[int, Callable[[], object]], store: Store
) -> tuple[Conversation, list[StoredMessage], dict[int, int]]:
    """All that is held, in one transaction: the conversation, its messages, and the held ones' new ids."""
    before, ids = chat.conversation, dict[int, int]()
    with store.database.write():
        id = before.id
        if not id:
            id = store.create_conversation(
                model=before.model or (held[0].model if held else ""),
                system=before.system,
                params=before.params,
            ).id
        for finish in unfinished.values():
            finish()
        for message in held:
            parent = message.parent_id
            ids[message.id] = store.add_copy(id, message, ids.get(parent, parent) if parent else None)
        if held and chat.leaf_id is not None:
            store.select(ids.get(chat.leaf_id, chat.leaf_id))
        store.touch(id)
        row = store.conversation(id)
        if not row.title:
            row = store.rename(id, "")
        return row, store.tree(id), ids
