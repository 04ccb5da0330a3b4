"""From the engine's streams to the store and the screen: new text, the phase, and how a reply ended.

One look at all live replies takes over what has come since the last one: nothing happens per token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from functools import partial
from typing import TYPE_CHECKING

from .collection import Conversations
from .conversation import Conversation
from .listener import Listener
from .live_reply import LiveReply
from .store_thread import StoreThread

if TYPE_CHECKING:
    from engine import Finished, TextDelta

    from ...store import ReplyWriter, Store

LOOK_SECONDS = 0.15
"""New text is taken over that often if nobody asks for it; the screen does, more often, when it draws."""

SAVE_SECONDS = 0.25
"""So long new text waits for more before it is saved: with the above, a crash loses below half a second."""


class Streaming:
    """Carries live replies to their end."""

    def __init__(self, conversations: Conversations, store: StoreThread, listener: Listener) -> None:
        self._conversations = conversations
        self._store = store
        self._listener = listener
        self._streams: dict[
            LiveReply, tuple[Conversation, asyncio.Future[None]]
        ] = {}  # done when it has ended
        self._next_look: asyncio.TimerHandle | None = None
        self._unsaved: dict[ReplyWriter, tuple[str, str]] = {}  # new text and thinking

    async def run(self, conversation: Conversation, replies: Iterable[LiveReply]) -> None:
        """Until all of these have ended."""
        results = await asyncio.gather(
            *(self._run(conversation, reply) for reply in replies), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def observe(self, prefilling: Set[LiveReply]) -> None:
        """Take over whose prompts are being computed, and save again what could not be saved."""
        writers = []
        for conversation in self._conversations.all:
            for reply in conversation.live.values():
                if reply.writer is not None:
                    writers.append(reply.writer)
                if reply.phase == "queued" and reply in prefilling:
                    reply.phase = "prefill"
                    self._listener.conversations_changed()
        if writers:
            self._store.post(partial(_tick, writers))

    async def _run(self, conversation: Conversation, reply: LiveReply) -> None:
        from engine import TextDelta

        finished: Finished | None = None
        writer = reply.writer
        try:
            first = await self._first(reply)
            if isinstance(first, TextDelta):
                self._take(conversation, reply, first)
                await self._until_finished(conversation, reply)
            rest = reply.finish()
            if reply.mistaken:
                if writer is not None:
                    self._unsaved.pop(writer, None)
                    text = reply.text
                    self._store.post(lambda store: writer.replace(text, ""))
            else:
                self._grow(conversation, reply, *rest)
            finished = reply.stream.finished
        except asyncio.CancelledError:  # the program ends, and nobody is there to wait for the store
            self._save()
            if writer is not None:
                self._store.post(lambda store: writer.finish("interrupted", "aborted"))
            raise
        except BaseException:
            await self._end(conversation, reply, None)
            raise
        else:
            await self._end(conversation, reply, finished)
        finally:
            reply.stream.abort()

    async def _first(self, reply: LiveReply) -> TextDelta | Finished | None:
        """The first event; None if the user wants no more before it, as the engine may be at work on it."""
        first = asyncio.ensure_future(anext(reply.stream))
        try:
            await asyncio.wait((first, reply.stopped), return_when=asyncio.FIRST_COMPLETED)
            return first.result() if first.done() else None
        finally:
            first.cancel()

    async def _until_finished(self, conversation: Conversation, reply: LiveReply) -> None:
        """Take a reply's text at every moment until it has ended."""
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams[reply] = conversation, finished
        self._look_later()
        try:
            await finished
        finally:
            del self._streams[reply]

    def look(self) -> None:
        """Take over what has come of all replies: for whoever draws it. Without that it happens by itself."""
        from engine import TextDelta

        for reply, (conversation, finished) in self._streams.items():
            try:
                while isinstance(event := reply.stream.take(), TextDelta):
                    self._take(conversation, reply, event)
            except Exception as error:  # a fault of the program's own ends this reply and no other
                if not finished.done():
                    finished.set_exception(error)
            else:
                if event is not None and not finished.done():
                    finished.set_result(None)
        self._look_later()

    def _look_later(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        loop = asyncio.get_running_loop()
        self._next_look = loop.call_later(LOOK_SECONDS, self.look) if self._streams else None

    def _take(self, conversation: Conversation, reply: LiveReply, delta: TextDelta) -> None:
        if reply.phase != "decode":
            reply.phase = "decode"
            self._listener.conversations_changed()
        reply.tokens += len(delta.token_ids)
        answer, thinking = reply.push(delta.text)
        if delta.logprobs:
            reply.doubts.push(delta, answer, reply.text)
        self._grow(conversation, reply, answer, thinking)

    def _grow(self, conversation: Conversation, reply: LiveReply, answer: str, thinking: str) -> None:
        if not (answer or thinking):
            return
        if reply.writer is not None:
            if not self._unsaved:
                asyncio.get_running_loop().call_later(SAVE_SECONDS, self._save)
            text, thought = self._unsaved.get(reply.writer, ("", ""))
            self._unsaved[reply.writer] = text + answer, thought + thinking
        self._listener.reply_grew(conversation, reply, answer, thinking)

    def _save(self) -> None:
        """Hand what is not saved yet to the store's thread."""
        unsaved, self._unsaved = self._unsaved, {}
        for writer, new in unsaved.items():
            self._store.post(partial(_appended, writer, *new))

    async def _end(self, conversation: Conversation, reply: LiveReply, finished: Finished | None) -> None:
        """Store how a reply ended. finished: None if it was stopped at once, or if the program failed."""
        from ...messages import Outcome, outcome_of

        outcome = outcome_of(finished, empty=not (reply.text or reply.thinking))
        if finished is None and reply.stopped.done():
            outcome = Outcome("interrupted", "aborted", {})
        error = finished.error if finished is not None else None
        broken = error is not None and error.code == "engine_failed"
        if error is not None:
            conversation.error = error.message.removesuffix("; restart termchat") if broken else error.message
            conversation.full = error.code in ("prompt_too_long", "never_fits")
        elif outcome.reason == "context":
            conversation.full = True
        assert conversation.tree is not None, "its replies are in it"
        before = conversation.tree[reply.message_id]
        self._save()
        row = await self._conversations.saving.finish(conversation, reply, outcome)
        conversation.live.pop(reply.message_id, None)
        if row is not None:
            conversation.tree[row.id] = row
            if reply.doubts.tokens:
                conversation.doubts[row.id] = reply.doubts
        else:
            del conversation.tree[reply.message_id]
            conversation.cut = outcome.reason == "aborted"
            if conversation.leaf_id == reply.message_id and before.parent_id is not None:
                conversation.leaf_id = conversation.leaf_below(before.parent_id)
        if self._conversations.shown is not conversation:
            self._conversations.set_unread(conversation, True)
        self._listener.conversation_changed(conversation)
        self._listener.conversations_changed()
        self._listener.reply_ended(conversation)
        if broken:
            await reply.slot.unload()  # the next message loads the model again


def _appended(writer: ReplyWriter, text: str, thinking: str, store: Store) -> None:
    writer.append(text, thinking)


def _tick(writers: list[ReplyWriter], store: Store) -> None:
    for writer in writers:
        writer.tick()
