"""From the engine's streams to the store and the screen: new text, the phase, and how a reply ended.

One look at all live replies takes over what has come since the last one: nothing happens per token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..errors import UserError
from .chat import Chat
from .chats import Chats
from .history import History
from .listener import Listener
from .reply import LiveReply

if TYPE_CHECKING:
    from engine import Finished, TextDelta

    from ..store import ReplyWriter, Store

LOOK_SECONDS = 0.15
"""New text is taken over that often if nobody asks for it; the screen does, more often, when it draws."""

SAVE_SECONDS = 0.25
"""So long new text waits for more before it is saved: with the above, a crash loses below half a second."""


class Relay:
    """Carries live replies to their end."""

    def __init__(self, chats: Chats, history: History, listener: Listener) -> None:
        self._chats = chats
        self._history = history
        self._listener = listener
        self._streaming: dict[LiveReply, tuple[Chat, asyncio.Future[None]]] = {}  # done when it has ended
        self._next_look: asyncio.TimerHandle | None = None
        self._unsaved: dict[ReplyWriter, tuple[str, str]] = {}  # new text and thinking

    async def run(self, chat: Chat, replies: Iterable[LiveReply]) -> None:
        """Until all of these have ended."""
        results = await asyncio.gather(*(self._run(chat, reply) for reply in replies), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def observe(self, prefilling: Set[LiveReply]) -> None:
        """Take over whose prompts are being computed, and save again what could not be saved."""
        writers = []
        for chat in self._chats.all:
            for reply in chat.live.values():
                writers.append(reply.writer)
                if reply.phase == "queued" and reply in prefilling:
                    reply.phase = "prefill"
                    self._listener.chats_changed()
        if writers:
            self._history.post(partial(_tick, writers))

    async def _run(self, chat: Chat, reply: LiveReply) -> None:
        from engine import TextDelta

        finished: Finished | None = None
        try:
            first = await anext(reply.stream)
            if isinstance(first, TextDelta):
                self._take(chat, reply, first)
                await self._until_finished(chat, reply)
            rest = reply.finish()
            if reply.mistaken:
                self._unsaved.pop(reply.writer, None)
                self._history.post(partial(_replace, reply.writer, reply.text))
            else:
                self._grow(chat, reply, *rest)
            finished = reply.stream.finished
        finally:
            reply.stream.abort()
            await self._end(chat, reply, finished)

    async def _until_finished(self, chat: Chat, reply: LiveReply) -> None:
        """Take a reply's text at every moment until it has ended."""
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streaming[reply] = chat, finished
        self._look_later()
        try:
            await finished
        finally:
            del self._streaming[reply]

    def look(self) -> None:
        """Take over what has come of all replies: for whoever draws it. Without that it happens by itself."""
        from engine import TextDelta

        for reply, (chat, finished) in self._streaming.items():
            try:
                while isinstance(event := reply.stream.take(), TextDelta):
                    self._take(chat, reply, event)
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
        self._next_look = loop.call_later(LOOK_SECONDS, self.look) if self._streaming else None

    def _take(self, chat: Chat, reply: LiveReply, delta: TextDelta) -> None:
        if reply.phase != "decode":
            reply.phase = "decode"
            self._listener.chats_changed()
        reply.tokens += len(delta.token_ids)
        self._grow(chat, reply, *reply.push(delta.text))

    def _grow(self, chat: Chat, reply: LiveReply, answer: str, thinking: str) -> None:
        if not (answer or thinking):
            return
        if not self._unsaved:
            asyncio.get_running_loop().call_later(SAVE_SECONDS, self._save)
        text, thought = self._unsaved.get(reply.writer, ("", ""))
        self._unsaved[reply.writer] = text + answer, thought + thinking
        self._listener.reply_grew(chat, reply, answer, thinking)

    def _save(self) -> None:
        """Hand what is not saved yet to the store's thread."""
        unsaved, self._unsaved = self._unsaved, {}
        for writer, new in unsaved.items():
            self._history.post(partial(_append, writer, *new))

    async def _end(self, chat: Chat, reply: LiveReply, finished: Finished | None) -> None:
        """Store how a reply ended. finished: None if the program itself failed."""
        from ..outcome import outcome_of

        outcome = outcome_of(finished, empty=not (reply.text or reply.thinking))
        error = finished.error if finished is not None else None
        broken = error is not None and error.code == "engine_failed"
        if error is not None:
            chat.error = error.message.removesuffix("; restart termchat") if broken else error.message
            chat.full = error.code in ("prompt_too_long", "never_fits")
        elif outcome.reason == "context":
            chat.full = True
        assert chat.tree is not None, "its replies are in it"
        before = chat.tree[reply.message_id]
        self._save()
        try:
            row = await self._history.call(lambda store: reply.writer.finish(*outcome))
        except (UserError, OSError) as failure:
            self._listener.notify_user(f"the reply is not saved: {failure}", error=True)
            row = replace(
                before,
                text=reply.text,
                thinking=reply.thinking,
                status=outcome.status,
                finish_reason=outcome.reason,
                metrics=outcome.metrics,
            )
        chat.live.pop(reply.message_id, None)
        if row is not None:
            chat.tree[row.id] = row
        else:
            del chat.tree[reply.message_id]
            if chat.leaf_id == reply.message_id and before.parent_id is not None:
                chat.leaf_id = chat.leaf_below(before.parent_id)
        chat.unread = chat.unread or self._chats.shown is not chat
        self._listener.chat_changed(chat)
        self._listener.chats_changed()
        self._listener.reply_ended(chat)
        if broken:
            await reply.bridge.unload()  # the next message loads the model again


def _append(writer: ReplyWriter, text: str, thinking: str, store: Store) -> None:
    writer.append(text, thinking)


def _replace(writer: ReplyWriter, text: str, store: Store) -> None:
    writer.replace(text, "")


def _tick(writers: list[ReplyWriter], store: Store) -> None:
    for writer in writers:
        writer.tick()
