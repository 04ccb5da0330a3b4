"""A reply that is being generated, as it is held in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from ...store import ReplyWriter, StoredMessage
from ...thinking import ThinkingSplitter

if TYPE_CHECKING:
    from engine import ResponseStream

    from ..engines.model_slot import ModelSlot

Phase = Literal["queued", "prefill", "decode"]
PHASES: tuple[Phase, ...] = ("queued", "prefill", "decode")


class LiveReply:
    """A reply that is being generated.

    writer: None if the store cannot take it now. slot: by which model. phase: where the engine is with it.
    tokens: of the reply so far; context_tokens: with those before it, None until the engine has said so.
    stopped: done when the user wants no more of it.
    """

    def __init__(
        self,
        writer: ReplyWriter | None,
        message: StoredMessage,
        slot: ModelSlot,
        stream: ResponseStream,
        splitter: ThinkingSplitter | None,
    ) -> None:
        """splitter: None if all that comes belongs to the answer."""
        self.message_id = message.id
        self.writer = writer
        self.slot = slot
        self.stream = stream
        self.phase: Phase = "queued"
        self.tokens = 0
        self.context_tokens: int | None = None
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._splitter = splitter
        self._text = [message.text] if message.text else []
        self._thinking = [message.thinking] if message.thinking else []

    def stop(self) -> None:
        """Ask for its end; the part that has come is kept."""
        self.stream.abort()
        if not self.stopped.done():
            self.stopped.set_result(None)

    @property
    def text(self) -> str:
        """The answer so far."""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0] if self._text else ""

    @property
    def thinking(self) -> str:
        """The thinking so far."""
        if len(self._thinking) > 1:
            self._thinking = ["".join(self._thinking)]
        return self._thinking[0] if self._thinking else ""

    def push(self, text: str) -> tuple[str, str]:
        """Take in new text; what is new of the answer and of the thinking."""
        return self._add(*(self._splitter.push(text) if self._splitter is not None else ("", text)))

    def finish(self) -> tuple[str, str]:
        """What was held back, at the end."""
        thinking, answer = self._splitter.finish() if self._splitter is not None else ("", "")
        if self.mistaken:
            self._thinking.clear()
        return self._add(thinking, answer)

    @property
    def mistaken(self) -> bool:
        """After `finish`: what was taken for thinking is text, all of it."""
        return self._splitter is not None and self._splitter.mistaken

    def _add(self, thinking: str, answer: str) -> tuple[str, str]:
        if answer:
            self._text.append(answer)
        if thinking:
            self._thinking.append(thinking)
        return answer, thinking
