"""A reply that is being generated, as it is held in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from ...messages import StoredMessage
from ...store import ReplyWriter
from ...thinking import ReplyText, ThinkingSplitter
from .doubts import Doubts

if TYPE_CHECKING:
    from engine import ResponseStream

    from ..engines.model_slot import ModelSlot

Phase = Literal["queued", "prefill", "decode"]
PHASES: tuple[Phase, ...] = ("queued", "prefill", "decode")


class LiveReply(ReplyText):
    """A reply that is being generated.

    writer: None if the store cannot take it now. slot: by which model. phase: where the engine is with it.
    tokens: of the reply so far; context_tokens: with those before it, None until the engine has said so.
    stopped: done when the user wants no more of it. doubts: see there; none where no probabilities come.
    """

    def __init__(
        self,
        writer: ReplyWriter | None,
        message: StoredMessage,
        slot: ModelSlot,
        stream: ResponseStream,
        splitter: ThinkingSplitter | None,
        doubts: Doubts | None = None,
    ) -> None:
        """splitter: None if all that comes belongs to the answer. doubts: of the text that is there."""
        super().__init__(splitter, message.text, message.thinking)
        self.message_id = message.id
        self.writer = writer
        self.slot = slot
        self.stream = stream
        self.phase: Phase = "queued"
        self.tokens = 0
        self.doubts = Doubts(len(message.text), doubts)
        self.context_tokens: int | None = None
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Ask for its end; the part that has come is kept."""
        self.stream.abort()
        if not self.stopped.done():
            self.stopped.set_result(None)
