"""From a message to replies that stream: the model is waited for, the prompt made, the replies begun."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from ...messages import StoredMessage, prompt_of
from ...thinking import ThinkingSplitter
from ..engines.model_slot import ModelSlot
from ..engines.pool import EnginePool
from .collection import Conversations
from .conversation import HELD, Conversation
from .listener import Listener
from .live_reply import LiveReply
from .store_thread import StoreThread
from .streaming import Streaming

if TYPE_CHECKING:
    from engine import Message, SamplingParams


class Answering:
    """confidence: whether replies come with the probabilities of their tokens."""

    def __init__(
        self,
        engines: EnginePool,
        conversations: Conversations,
        store: StoreThread,
        streaming: Streaming,
        listener: Listener,
    ) -> None:
        self._engines = engines
        self._conversations = conversations
        self._store = store
        self._streaming = streaming
        self._listener = listener
        self.confidence = False

    async def answer(
        self, conversation: Conversation, parent: int, count: int = 1, ids: list[int] | None = None
    ) -> None:
        """Answer a message, so many times at once. ids: gets those of the answers. EngineUnavailableError."""
        slot = await self._ready(conversation)
        if slot is None or (engine := slot.engine) is None:
            return
        await self._conversations.saving.settle(conversation)
        parent = self._conversations.saving.now(parent)
        params = self._params(conversation, slot)
        prompt = prompt_of(conversation.branch(parent), conversation.system)
        begun = await self._conversations.saving.begin(conversation, parent, slot.reference, count)
        variables = slot.template_vars()
        if count == 1:
            streams = [engine.generate(prompt, params, template_vars=variables)]
        else:
            streams = engine.generate_many(prompt, params, n=count, template_vars=variables)
        replies = []
        for (writer, row), stream in zip(begun, streams, strict=True):
            splitter = slot.thinking.splitter()
            reply = LiveReply(writer, row, slot, stream, splitter)
            conversation.live[row.id] = reply
            conversation.put(row)
            replies.append(reply)
        if ids is not None:
            ids += [row.id for _, row in begun]
        if count > 1:
            await self._conversations.select(conversation, replies[0].message_id)
        await self._stream_all(conversation, replies)

    async def go_on(self, conversation: Conversation, message: StoredMessage) -> None:
        """Go on with an answer that was interrupted. EngineUnavailableError."""
        from engine import Message

        slot = await self._ready(conversation)
        if slot is None or (engine := slot.engine) is None:
            return
        params = self._params(conversation, slot)
        inside = bool(message.thinking) and not message.text
        said: list[Message] = prompt_of(conversation.branch(message.parent_id), conversation.system)
        marks = slot.thinking.marks
        said.append(Message("assistant", f"{marks.opening}{message.thinking}" if inside else message.text))
        # A mark inside an answer is text.
        splitter = ThinkingSplitter(inside=True, marks=marks) if inside else None
        writer = None
        if message.id < HELD:
            writer = await self._store.call(lambda store: store.resume_reply(message.id, flush_every=0))
        variables = slot.template_vars()
        stream = engine.generate(said, params, continue_final=True, template_vars=variables)
        reply = LiveReply(writer, message, slot, stream, splitter, conversation.doubts.get(message.id))
        conversation.live[message.id] = reply
        assert conversation.tree is not None, "its messages are shown"
        conversation.tree[message.id] = replace(message, status="streaming")
        await self._stream_all(conversation, [reply])

    async def _ready(self, conversation: Conversation) -> ModelSlot | None:
        """Its model, once it is loaded; None if the user stopped meanwhile. EngineUnavailableError."""
        conversation.waiting = asyncio.ensure_future(self._engines.ready(conversation.model))
        try:
            slot = await conversation.waiting
        except asyncio.CancelledError:
            if conversation.stopping:
                return None
            raise
        finally:
            conversation.waiting = None
        if not conversation.model:  # the first message was stored before it was known what the default is
            await self._conversations.set_model(conversation, slot.reference)
        return None if conversation.stopping else slot

    async def _stream_all(self, conversation: Conversation, replies: list[LiveReply]) -> None:
        if conversation.stopping:  # asked for while the request was made
            for reply in replies:
                reply.stop()
        self._listener.conversation_changed(conversation)
        self._listener.conversations_changed()
        await self._streaming.run(conversation, replies)

    def _params(self, conversation: Conversation, slot: ModelSlot) -> SamplingParams:
        params = slot.sampling(conversation.sampling).seeded()
        return replace(params, logprobs=0) if self.confidence else params
