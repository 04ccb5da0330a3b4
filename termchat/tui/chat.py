"""A conversation in memory: its messages as a tree, its live replies, its queue; the rest is derived."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ..settings import SAMPLING_KEYS
from ..store import Conversation, ReplyWriter, StoredMessage
from ..thinking import ThinkingSplitter

if TYPE_CHECKING:
    from engine import ResponseStream

Phase = Literal["queued", "prefill", "decode"]
ChatState = Literal["idle", "queued", "prefill", "decode", "interrupted", "error"]

_ORDER: tuple[Phase, ...] = ("queued", "prefill", "decode")


class LiveReply:
    """A reply that is being generated. phase: where the engine is with it."""

    def __init__(
        self,
        writer: ReplyWriter,
        message: StoredMessage,
        stream: ResponseStream,
        splitter: ThinkingSplitter | None,
    ) -> None:
        """splitter: None if all that comes belongs to the answer."""
        self.message_id = message.id
        self.writer = writer
        self.stream = stream
        self.phase: Phase = "queued"
        self.tokens = 0
        self._splitter = splitter
        self._text = [message.text] if message.text else []
        self._thinking = [message.thinking] if message.thinking else []

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
        return self._add(*(self._splitter.finish() if self._splitter is not None else ("", "")))

    def _add(self, thinking: str, answer: str) -> tuple[str, str]:
        if answer:
            self._text.append(answer)
        if thinking:
            self._thinking.append(thinking)
        return answer, thinking


@dataclass(eq=False)
class Chat:
    """One conversation.

    conversation: its stored row; None until its first message. tree: its messages by id; None until it was
    opened. queue: texts to be sent when the replies before them are done. live: replies by message id.
    sending: the pump is at work. waiting: what it waits for before the engine gets the request. error: why
    the last turn failed. full: the engine said that the context has no room. unread: a reply came while
    another conversation was shown. draft: what was typed and not sent.
    """

    model: str = ""
    system: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    conversation: Conversation | None = None
    tree: dict[int, StoredMessage] | None = None
    queue: list[str] = field(default_factory=list)
    live: dict[int, LiveReply] = field(default_factory=dict)
    sending: bool = False
    stopping: bool = False
    waiting: asyncio.Future[Any] | None = None
    error: str = ""
    full: bool = False
    unread: bool = False
    draft: str = ""

    @property
    def id(self) -> str | None:
        """Its id in the store; None before its first message."""
        return self.conversation.id if self.conversation is not None else None

    @property
    def title(self) -> str:
        """What to call it."""
        return (self.conversation.title if self.conversation is not None else "") or "New chat"

    @property
    def sampling(self) -> dict[str, Any]:
        """Its own sampling settings."""
        return {key: value for key, value in self.params.items() if key in SAMPLING_KEYS}

    def take(self, conversation: Conversation) -> None:
        """Take over what the store says."""
        self.conversation = conversation
        self.model, self.system, self.params = conversation.model, conversation.system, conversation.params

    @property
    def leaf_id(self) -> int | None:
        """The last message of the branch shown."""
        return self.conversation.leaf_id if self.conversation is not None else None

    @leaf_id.setter
    def leaf_id(self, leaf: int | None) -> None:
        assert self.conversation is not None, "a stored conversation"
        self.conversation = replace(self.conversation, leaf_id=leaf)

    @property
    def messages(self) -> list[StoredMessage]:
        """The branch shown, first message first."""
        return self.branch(self.leaf_id)

    def branch(self, leaf: int | None) -> list[StoredMessage]:
        """The messages from the root to `leaf`."""
        known = dict(self.tree or {})
        found: list[StoredMessage] = []
        while leaf in known:  # each message once, so that a damaged database cannot lead in a circle
            message = known.pop(leaf)
            found.append(message)
            leaf = message.parent_id
        return found[::-1]

    def siblings(self, message: StoredMessage) -> list[int]:
        """The ids of a message and its alternatives, the oldest first."""
        tree = self.tree or {}
        return sorted(other.id for other in tree.values() if other.parent_id == message.parent_id)

    def leaf_below(self, message_id: int) -> int:
        """The leaf of the newest branch through a message."""
        newest: dict[int, int] = {}
        for message in sorted((self.tree or {}).values(), key=lambda message: message.id):
            if message.parent_id is not None:
                newest[message.parent_id] = message.id
        while message_id in newest:
            message_id = newest.pop(message_id)
        return message_id

    @property
    def busy(self) -> bool:
        """Whether something is being answered."""
        return self.sending or bool(self.live)

    @property
    def state(self) -> ChatState:
        """Where the conversation is."""
        if self.live:
            return max((reply.phase for reply in self.live.values()), key=_ORDER.index)
        if self.sending:
            return "queued"
        if self.error:
            return "error"
        last = (self.tree or {}).get(self.leaf_id or 0)
        if last is not None and last.status in ("interrupted", "error"):
            return "interrupted" if last.status == "interrupted" else "error"
        return "idle"

    @property
    def tokens_used(self) -> int | None:
        """Tokens of the branch shown as of its last reply, prompt included; None before one."""
        for message in reversed(self.messages):
            prompt, completion = (
                message.metrics.get(name) for name in ("prompt_tokens", "completion_tokens")
            )
            if isinstance(prompt, int) and isinstance(completion, int):
                return prompt + completion
        return None
