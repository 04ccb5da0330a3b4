"""A conversation in memory: its messages as a tree, its live replies, its queue; the rest is derived."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..settings import SAMPLING_KEYS
from ..store import Conversation, StoredMessage
from .reply import PHASES, LiveReply

ChatState = Literal["idle", "queued", "prefill", "decode", "interrupted", "error"]


def unstored(system: str = "", params: Mapping[str, Any] | None = None) -> Conversation:
    """A conversation that the store does not have yet."""
    return Conversation(
        id="",
        title="",
        title_auto=True,
        model="",
        system=system,
        params=dict(params or {}),
        leaf_id=None,
        forked_from=None,
        created=0.0,
        updated=0.0,
        messages=0,
    )


@dataclass(eq=False)
class Chat:
    """One conversation.

    conversation: its row in the store, with an empty id until its first message. tree: its messages by id;
    None until it was opened. queue: texts to be sent when the replies before them are done. live: replies by
    message id. preparing: messages that wait for files or an answer of the user. sending: the pump is at
    work. waiting: what it waits for before the engine gets the request. error: why the last turn failed.
    full: the engine said that the context has no room; warned: the user was told that this is near. unread: a
    reply came while another conversation was shown. draft: what was typed and not sent; editing: the message
    that it is to be a new version of. given: sampling settings of the command line, which hold for this run.
    """

    conversation: Conversation = field(default_factory=unstored)
    tree: dict[int, StoredMessage] | None = None
    queue: list[str] = field(default_factory=list)
    live: dict[int, LiveReply] = field(default_factory=dict)
    preparing: int = 0
    sending: bool = False
    stopping: bool = False
    waiting: asyncio.Future[Any] | None = None
    error: str = ""
    full: bool = False
    warned: bool = False
    unread: bool = False
    draft: str = ""
    editing: StoredMessage | None = None
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str | None:
        """Its id in the store; None before its first message."""
        return self.conversation.id or None

    @property
    def title(self) -> str:
        """What to call it."""
        return self.conversation.title or "New chat"

    @property
    def model(self) -> str:
        """Name or path of the model it is held with; "" before its first message."""
        return self.conversation.model

    @property
    def system(self) -> str:
        """Its system prompt."""
        return self.conversation.system

    @property
    def sampling(self) -> dict[str, Any]:
        """Its own sampling settings, under those of the command line."""
        settings = {**self.conversation.params, **self.given}
        return {key: value for key, value in settings.items() if key in SAMPLING_KEYS}

    @property
    def leaf_id(self) -> int | None:
        """The last message of the branch shown."""
        return self.conversation.leaf_id

    @leaf_id.setter
    def leaf_id(self, leaf: int | None) -> None:
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

    def put(self, message: StoredMessage) -> None:
        """Add a message; it ends the branch shown."""
        if self.tree is None:
            self.tree = {}
        self.tree[message.id] = message
        self.leaf_id = message.id

    @property
    def busy(self) -> bool:
        """Whether something is being answered."""
        return self.sending or bool(self.live)

    @property
    def state(self) -> ChatState:
        """Where the conversation is."""
        if self.live:
            return max((reply.phase for reply in self.live.values()), key=PHASES.index)
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
