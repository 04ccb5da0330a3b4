"""A conversation in memory: its messages as a tree, its live replies, its queue; the rest is derived."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...constraints import over
from ...messages import (
    Ending,
    StoredConversation,
    StoredMessage,
    branch_of,
    ending_of,
    newest_leaf,
)
from ...slash import as_typed
from ...store import NotFoundError
from .doubts import Doubts
from .live_reply import PHASES, LiveReply
from .origin import all_from
from .outgoing import Outgoing

ConversationState = Literal["idle", "queued", "prefill", "decode", "interrupted", "error"]

_STATES: dict[Ending, ConversationState] = {
    "": "idle",
    "unanswered": "interrupted",
    "interrupted": "interrupted",
    "error": "error",
    "streaming": "decode",
}

HELD = 1 << 62
"""Ids from here on are of messages that the store could not take yet."""


def unstored(system: str = "", params: Mapping[str, Any] | None = None) -> StoredConversation:
    """A conversation that the store does not have yet."""
    return StoredConversation(
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
class Conversation:
    """One conversation.

    row: its row in the store, with an empty id until its first message. tree: its messages by id;
    None until it was opened. queue: texts to be sent when the replies before them are done. live: replies by
    message id. preparing: texts that wait for files or an answer of the user. sending: the pump is at work.
    waiting: what it waits for before the engine gets the request. error: why the last turn failed. full: the
    engine said that the context has no room; warned: the user was told that this is near. cut: the last turn
    was stopped before its first token. busy_elsewhere: it waits for a reply that another process makes in it.
    unread: a reply came while another conversation was shown. news: another window has added to it; gone: it
    was deleted, there or here. draft: what was typed and not sent, origins: where its characters came from;
    refused: a text that was not sent, for its files or its length, refusal: what was said of it; editing: the
    message that it is to be a new version of; aside: the draft before that, with its origins. key: names
    what is unsent in the store, kept: as the store has it. unfinished: how replies ended that the store
    could not take. given: sampling settings of the command line, which hold for this run. doubts: of replies
    of this run, by message id.
    """

    row: StoredConversation = field(default_factory=unstored)
    tree: dict[int, StoredMessage] | None = None
    queue: list[str] = field(default_factory=list)
    live: dict[int, LiveReply] = field(default_factory=dict)
    preparing: list[Outgoing] = field(default_factory=list)
    sending: bool = False
    stopping: bool = False
    waiting: asyncio.Future[Any] | None = None
    error: str = ""
    full: bool = False
    warned: bool = False
    cut: bool = False
    busy_elsewhere: bool = False
    unread: bool = False
    news: bool = False
    gone: bool = False
    draft: str = ""
    origins: bytes = b""
    refused: str = ""
    refusal: str = ""
    editing: StoredMessage | None = None
    aside: tuple[str, bytes] = "", b""
    given: Mapping[str, Any] = field(default_factory=dict)
    key: str = field(default_factory=lambda: os.urandom(8).hex())
    kept: str = ""
    unfinished: dict[int, Callable[[], object]] = field(default_factory=dict)
    doubts: dict[int, Doubts] = field(default_factory=dict)

    @property
    def id(self) -> str | None:
        """Its id in the store; None before its first message."""
        return self.row.id or None

    @property
    def stored_id(self) -> str:
        """Its id in the store. NotFoundError: it has none yet."""
        if not self.row.id:
            raise NotFoundError("this conversation is not stored yet")
        return self.row.id

    @property
    def title(self) -> str:
        """What to call it."""
        return self.row.title or "New chat"

    @property
    def model(self) -> str:
        """Name or path of the model it is held with; "" before its first message."""
        return self.row.model

    @property
    def system(self) -> str:
        """Its system prompt."""
        return self.row.system

    @property
    def sampling(self) -> dict[str, Any]:
        """Its own sampling settings, under those of the command line."""
        return over(self.row.sampling, self.given)

    @property
    def leaf_id(self) -> int | None:
        """The last message of the branch shown."""
        return self.row.leaf_id

    @leaf_id.setter
    def leaf_id(self, leaf: int | None) -> None:
        self.row = replace(self.row, leaf_id=leaf)

    @property
    def messages(self) -> list[StoredMessage]:
        """The branch shown, first message first."""
        return self.branch(self.leaf_id)

    def branch(self, leaf: int | None) -> list[StoredMessage]:
        """The messages from the root to `leaf`."""
        return branch_of((self.tree or {}).values(), leaf)

    @property
    def unsent(self) -> str:
        """All that was typed here and not sent, as one text."""
        typed = (text for text in (self.aside[0], self.draft) if text.strip())
        taken = (each.text for each in self.preparing)
        return "\n\n".join([*taken, *map(as_typed, self.queue), *typed])

    def put_back(self, taken: Outgoing) -> None:
        """A text that is not sent after all: an edit is one again, if no other has begun."""
        if taken.editing is None or self.editing is not None:
            self.take_back(taken.text, taken.origins)
        else:
            self.aside, self.editing = (self.draft, self.origins), taken.editing
            self.draft, self.origins = taken.text, taken.origins

    def take_back(self, text: str, origins: bytes = b"") -> None:
        """A text that is not sent after all, before what is typed, but never as a part of an edit.

        origins: of its characters, if known.
        """
        below, below_origins = self.aside if self.editing is not None else (self.draft, self.origins)
        known = origins if len(origins) == len(text) else all_from("back", len(text))
        if below.strip():
            whole = len(below_origins) == len(below)
            known = known + all_from("typed", 2) + below_origins if whole else b""
            text = f"{text}\n\n{below}"
        if self.editing is not None:
            self.aside = text, known
        else:
            self.draft, self.origins = text, known

    @property
    def held(self) -> list[StoredMessage]:
        """Messages that the store could not take yet, in the order in which they were made."""
        return [message for message in (self.tree or {}).values() if message.id >= HELD]

    @property
    def ending(self) -> Ending:
        """What the branch shown lacks."""
        if self.tree is None:
            return self.row.ending
        last = self.tree.get(self.leaf_id or 0)
        return ending_of(last.role, last.status) if last is not None else ""

    def siblings(self, message: StoredMessage) -> list[int]:
        """The ids of a message and its alternatives, the oldest first."""
        tree = self.tree or {}
        return sorted(other.id for other in tree.values() if other.parent_id == message.parent_id)

    def leaf_below(self, message_id: int) -> int:
        """The leaf of the newest branch through a message."""
        leaf = newest_leaf((self.tree or {}).values(), message_id)
        assert leaf is not None, "it is below a message"
        return leaf

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
    def state(self) -> ConversationState:
        """Where the conversation is."""
        if self.live:
            return max((reply.phase for reply in self.live.values()), key=PHASES.index)
        if self.sending:
            return "queued"
        if self.error:
            return "error"
        return _STATES[self.ending]

    @property
    def tokens_used(self) -> int | None:
        """Tokens of the branch shown as far as they are counted, prompt included; None before a reply."""
        for message in reversed(self.messages):
            live = self.live.get(message.id)
            if live is not None and live.context_tokens is not None:
                return live.context_tokens
            prompt, completion = (
                message.metrics.get(name) for name in ("prompt_tokens", "completion_tokens")
            )
            if isinstance(prompt, int) and isinstance(completion, int):
                return prompt + completion
        return None
