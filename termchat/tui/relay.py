"""From the engine's streams to the store and the screen: new text, the phase, and how a reply ended.

A live reply takes what has come, sleeps, and takes what has come since: nothing happens per token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .chat import Chat
from .chats import Chats
from .history import History
from .listener import Listener
from .reply import LiveReply

if TYPE_CHECKING:
    from engine import Finished

RELAY_SECONDS = 0.1
"""How often new text of replies is taken over: of all at the same moments, so that the loop wakes once."""


class Relay:
    """Carries live replies to their end."""

    def __init__(self, chats: Chats, history: History, listener: Listener) -> None:
        self._chats = chats
        self._history = history
        self._listener = listener

    async def run(self, chat: Chat, replies: Iterable[LiveReply]) -> None:
        """Until all of these have ended."""
        results = await asyncio.gather(*(self._run(chat, reply) for reply in replies), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def observe(self, prefilling: Set[LiveReply]) -> None:
        """Take over whose prompts are being computed, and save what is due."""
        for chat in self._chats.all:
            for reply in chat.live.values():
                self._history.post(lambda store, writer=reply.writer: writer.tick())  # type: ignore[misc]
                if reply.phase == "queued" and reply in prefilling:
                    reply.phase = "prefill"
                    self._listener.chats_changed()

    async def _run(self, chat: Chat, reply: LiveReply) -> None:
        from engine import TextDelta

        finished: Finished | None = None
        try:
            async for event in reply.stream:
                if isinstance(event, TextDelta):
                    if reply.phase != "decode":
                        reply.phase = "decode"
                        self._listener.chats_changed()
                    reply.tokens += len(event.token_ids)
                    self._grow(chat, reply, *reply.push(event.text))
                    await asyncio.sleep(RELAY_SECONDS - time.monotonic() % RELAY_SECONDS)
            self._grow(chat, reply, *reply.finish())
            finished = reply.stream.finished
        finally:
            reply.stream.abort()
            await self._end(chat, reply, finished)

    def _grow(self, chat: Chat, reply: LiveReply, answer: str, thinking: str) -> None:
        if not (answer or thinking):
            return
        self._history.post(lambda store: reply.writer.append(answer, thinking))
        self._listener.reply_grew(chat, reply, answer, thinking)

    async def _end(self, chat: Chat, reply: LiveReply, finished: Finished | None) -> None:
        """Store how a reply ended. finished: None if the program itself failed."""
        from engine import as_dict

        reason = finished.reason if finished is not None else "error"
        status: Any = {"error": "error", "aborted": "interrupted"}.get(reason, "done")
        error = finished.error if finished is not None else None
        metrics = {}
        if finished is not None:
            metrics = {**as_dict(finished.usage), **as_dict(finished.timings), "seed": finished.seed}
        broken = error is not None and error.code == "engine_failed"
        if error is not None:
            chat.error = error.message.removesuffix("; restart termchat") if broken else error.message
            chat.full = error.code in ("prompt_too_long", "never_fits")
            if not reply.text and not reply.thinking:
                status = "interrupted"  # an empty reply is no reply: it goes
        elif reason == "context":
            chat.full = True
        assert chat.tree is not None, "its replies are in it"
        before = chat.tree[reply.message_id]
        try:
            row = await self._history.call(lambda store: reply.writer.finish(status, reason, metrics))
        except (UserError, OSError) as failure:
            self._listener.notify_user(f"the reply is not saved: {failure}", error=True)
            row = replace(
                before,
                text=reply.text,
                thinking=reply.thinking,
                status=status,
                finish_reason=reason,
                metrics=metrics,
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
