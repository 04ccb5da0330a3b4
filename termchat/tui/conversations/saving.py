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
from typing import TYPE_CHECKING, Literal, TypeVar

from ...errors import UserError
from ...files import PathError, private_folder
from ...messages import StoredConversation, StoredMessage
from ...store import ReplyWriter, Store, StoreUnavailableError, document_of, export_file, save_draft
from ...store.values import title_of
from .conversation import HELD, Conversation
from .listener import Listener
from .live_reply import LiveReply
from .outgoing import Outgoing
from .store_thread import StoreThread

if TYPE_CHECKING:
    from ...messages import Outcome, Role

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_SECONDS = 5.0
"""From one try to store what is held to the next."""

UNAVAILABLE = (StoreUnavailableError, PathError, OSError)
"""Errors that are the disk's, not the request's."""


class Saving:
    """Messages and replies on their way to the store."""

    def __init__(self, store: StoreThread, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._trouble = ""
        self._last = HELD
        self._ids: dict[int, int] = {}  # of messages that were held, as they are in the store
        self._settling = asyncio.Lock()
        self._held: set[Conversation] = set()
        self._retry: asyncio.Task[None] | None = None
        self._ended = False  # a try after the last one would find the store closed

    async def add(
        self, conversation: Conversation, text: str, model: str
    ) -> tuple[StoredMessage, StoredConversation, list[StoredMessage]]:
        """What the user said, below what is shown; with a first message the conversation, too.

        The message; the conversation as it is then; all its messages, if another window has added some.
        What of the conversation is still unsent is stored with it.
        """
        await self.settle(conversation)
        before, known = conversation.row, len(conversation.tree or {})
        unsent, parent = conversation.unsent, conversation.leaf_id

        def write(store: Store) -> tuple[StoredMessage, StoredConversation, list[StoredMessage]]:
            with store.database.write():
                id = before.id
                if not id:
                    new = store.create_conversation(model=model, system=before.system, params=before.params)
                    id = new.id
                # Another window may have gone on: its messages stay, on a branch of their own.
                message = store.add_message(id, "user", text, parent, model=model)
                save_draft(store, conversation.key, id, unsent)
                row = store.conversation(id)
                return message, row, store.tree(id) if row.messages != known + 1 else []

        if not conversation.held and (done := await self._try(write)) is not None:
            conversation.kept = unsent
            return done
        message = self._hold(conversation, "user", text, parent, model)
        row = replace(conversation.row, title=conversation.row.title or title_of(text), leaf_id=message.id)
        return message, row, []

    async def edit(self, conversation: Conversation, message: StoredMessage, text: str) -> StoredMessage:
        """A new version of a message of the user."""
        unsent = conversation.unsent

        def write(store: Store) -> StoredMessage:
            with store.database.write():
                save_draft(store, conversation.key, conversation.id, unsent)
                return store.edit(message.id, text)

        if message.id < HELD and (done := await self._try(write)) is not None:
            conversation.kept = unsent
            return done
        return self._hold(conversation, "user", text, message.parent_id, message.model)

    async def begin(
        self, conversation: Conversation, parent: int, model: str, count: int
    ) -> Sequence[tuple[ReplyWriter | None, StoredMessage]]:
        """Begin answers to a message."""
        id = conversation.id

        def write(store: Store) -> Sequence[tuple[ReplyWriter, StoredMessage]]:
            assert id is not None, "its message is stored"
            with store.database.write():
                writers = [store.begin_reply(id, parent, model, flush_every=0) for _ in range(count)]
                return [(writer, store.message(writer.message_id)) for writer in writers]

        if parent < HELD and (begun := await self._try(write)) is not None:
            return begun
        return [(None, self._hold(conversation, "assistant", "", parent, model)) for _ in range(count)]

    async def finish(
        self, conversation: Conversation, reply: LiveReply, outcome: Outcome
    ) -> StoredMessage | None:
        """How a reply ended; None if it ended before it had a word, and is gone."""
        assert conversation.tree is not None, "its replies are in it"
        row = replace(
            conversation.tree[reply.message_id],
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
            done = await self._store.call(lambda store: finish())
        except UNAVAILABLE as error:
            conversation.unfinished[reply.message_id] = finish
            self._wait(conversation)
            self.failed(error)
            return row
        self.well()
        if done is None and (reply.text or reply.thinking):
            title = conversation.title
            self._listener.notify_user(f"{title}: the conversation was purged elsewhere", error=True)
            return row
        return done

    async def settle(self, conversation: Conversation) -> bool:
        """Store what of a conversation is held; whether nothing is held any more."""
        async with self._settling:
            return await self._settle(conversation)

    def now(self, id: int) -> int:
        """The id of a message, in place of the one that it had while it was held."""
        return self._ids.get(id, id)

    async def _settle(self, conversation: Conversation) -> bool:
        held, unfinished = conversation.held, dict(conversation.unfinished)
        if not held and not unfinished:
            return True
        if conversation.live:
            return False
        try:
            row, tree, ids = await self._store.call(partial(_write, conversation, held, unfinished))
        except UNAVAILABLE as error:
            self.failed(error)
            return False
        except UserError as error:  # deleted for good, for example: there is nowhere to put it
            self._listener.notify_user(f"{conversation.title} is not stored: {error}", error=True)
            self._held.discard(conversation)
            return False
        for id in unfinished:
            conversation.unfinished.pop(id, None)
        self._ids.update(ids)
        edits: list[Conversation | Outgoing] = [conversation, *conversation.preparing]
        for each in edits:
            if each.editing is not None:
                each.editing = replace(each.editing, id=self.now(each.editing.id))
        leaf = ids.get(conversation.leaf_id or 0, conversation.leaf_id)
        conversation.row = replace(row, leaf_id=leaf)
        conversation.tree = {message.id: message for message in tree}
        self._held.discard(conversation)
        self.well()
        self._listener.conversation_changed(conversation)
        return True

    def post_held(self) -> None:
        """Try for the last time, when the program ends."""
        self._ended = True

        def write(conversation: Conversation, store: Store) -> None:
            _write(conversation, conversation.held, conversation.unfinished, store)
            self._held.discard(conversation)

        for conversation in self._held:
            self._store.post(partial(write, conversation))

    def rescue(self, folders: Iterable[Path]) -> str:
        """When all is closed: put what is held into a file; a sentence about it. folders: best first."""
        if not self._held:
            return ""
        left = [
            (replace(each.row, id=each.id or os.urandom(6).hex()), list((each.tree or {}).values()))
            for each in self._held
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

    async def _try(self, write: Callable[[Store], T]) -> T | None:
        """Carry out a call on the store; None if that cannot take it now."""
        try:
            done = await self._store.call(write)
        except UNAVAILABLE as error:
            self.failed(error)
            return None
        self.well()
        return done

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

    def _hold(
        self, conversation: Conversation, role: Role, text: str, parent: int | None, model: str
    ) -> StoredMessage:
        self._last += 1
        self._wait(conversation)
        status: Literal["done", "streaming"] = "streaming" if role == "assistant" else "done"
        return StoredMessage(
            id=self._last,
            conversation_id=conversation.row.id,
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

    def _wait(self, conversation: Conversation) -> None:
        self._held.add(conversation)
        if self._retry is None or self._retry.done():
            self._retry = asyncio.create_task(self._settle_later())

    async def _settle_later(self) -> None:
        await asyncio.sleep(RETRY_SECONDS)
        while self._held and not self._ended:
            for conversation in [each for each in self._held if not each.busy]:
                await self.settle(conversation)
            await asyncio.sleep(RETRY_SECONDS)


def _write(
    conversation: Conversation,
    held: Sequence[StoredMessage],
    unfinished: Mapping[int, Callable[[], object]],
    store: Store,
) -> tuple[StoredConversation, list[StoredMessage], dict[int, int]]:
    """All that is held, in one transaction: the conversation, its messages, and the held ones' new ids."""
    before, ids = conversation.row, dict[int, int]()
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
        if held and conversation.leaf_id is not None:
            store.select(ids.get(conversation.leaf_id, conversation.leaf_id))
        store.touch(id)
        row = store.conversation(id)
        if not row.title:
            row = store.rename(id, "")
        return row, store.tree(id), ids
