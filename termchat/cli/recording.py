"""Saves a conversation while it happens. What cannot be saved is one warning; the reply comes anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ..errors import UserError
from ..messages import Conversation, StoredMessage

if TYPE_CHECKING:
    from ..store import ReplyWriter, Store

Status = Literal["done", "interrupted", "error"]


class Recording:
    """Writes one conversation into a store, or nothing (store None, or after a failure).

    conversation: the one that goes on; None begins a new one with the first message. created: it was made for
    this, and goes again if nothing comes into it. `warn` gets the reason of a failure, once.
    """

    def __init__(
        self,
        store: Store | None,
        warn: Callable[[str], None],
        conversation: Conversation | None = None,
        *,
        created: bool = False,
    ) -> None:
        self._store = store
        self._warn = warn
        self._conversation = conversation
        self._created = created
        self._question: StoredMessage | None = None
        self._reply: ReplyWriter | None = None
        if store is not None and store.notice is not None:
            self._give_up(store.notice)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._store is not None:
            store, conversation = self._store, self._conversation
            if conversation is not None and self._created and self._question is None:
                self._attempt(lambda: store.delete(conversation.id))
            with suppress(UserError, OSError):
                store.close()

    @property
    def conversation_id(self) -> str | None:
        """Where the messages are saved; None if they are not."""
        return self._conversation.id if self._store is not None and self._conversation is not None else None

    @property
    def message_id(self) -> int | None:
        """The reply that is being written; None if it is not saved."""
        return self._reply.message_id if self._store is not None and self._reply is not None else None

    def new_conversation(self) -> None:
        """The next message begins another conversation."""
        self._conversation, self._created, self._question = None, False, None

    def begin(self, text: str, *, model: str, system: str) -> None:
        """Save what the user said, safely, and open the reply."""
        if self._store is not None:
            store = self._store
            self._attempt(lambda: self._begin(store, text, model, system))

    def append(self, answer: str, thinking: str) -> None:
        """Add to the reply."""
        if self._reply is not None:
            reply = self._reply
            self._attempt(lambda: reply.append(answer, thinking))

    def finish(self, status: Status, reason: str, metrics: Mapping[str, Any]) -> None:
        """Save the whole reply and how it ended."""
        if self._reply is not None:
            reply, self._reply = self._reply, None
            self._attempt(lambda: reply.finish(status, reason, metrics))

    def take_back(self) -> None:
        """The engine refused the message before a word came: it must not stand in the way of the next one."""
        self.finish("interrupted", "error", {})
        if self._store is not None and self._question is not None:
            store, question, self._question = self._store, self._question, None
            self._attempt(lambda: store.drop_reply(question.id))

    def _begin(self, store: Store, text: str, model: str, system: str) -> None:
        if self._conversation is None:
            self._conversation = store.create_conversation(model=model, system=system)
            self._created = True
        elif system != self._conversation.system:
            store.set_system(self._conversation.id, system)
            self._conversation = store.conversation(self._conversation.id)
        self._question = store.add_message(self._conversation.id, "user", text, model=model)
        self._reply = store.begin_reply(self._conversation.id, model=model)

    def _attempt(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except (UserError, OSError) as error:
            self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        if self._store is not None:
            with suppress(UserError, OSError):
                self._store.close()
        self._store = self._reply = None
        self._warn(f"the conversation is not saved: {reason}")
