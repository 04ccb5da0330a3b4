"""Saves a conversation while it happens. What cannot be saved is one warning; the reply comes anyway.

What could not be saved is tried again with what follows, and at the end: a disk can have room by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ..errors import UserError
from ..messages import StoredConversation, StoredMessage, said_now

if TYPE_CHECKING:
    from ..messages import Outcome
    from ..store import BegunTurn, ReplyWriter, Store

BUSY_SECONDS = 60.0
"""How long a message waits for one reply that another process makes in the same conversation."""

RETRY_SECONDS = 0.5
"""How long what could not be saved at first waits for a lock, the next times."""

NOTE_SECONDS = 1.0
POLL_SECONDS = 0.1


class Said(NamedTuple):
    """What the user said: below the messages of which branch, and under which system prompt."""

    text: str
    model: str
    system: str
    branch: Sequence[StoredMessage]


class Recording:
    """Writes one conversation into a store, or nothing (store None, or one that is read-only).

    conversation: the one that goes on; None begins a new one with the first message, `name` being its id.
    past: its messages so far. `warn` gets the reason of a failure, once for each time that it begins.
    """

    def __init__(
        self,
        store: Store | None,
        warn: Callable[[str], None],
        conversation: StoredConversation | None = None,
        past: Sequence[StoredMessage] = (),
        *,
        name: str | None = None,
    ) -> None:
        self._store = store
        self._warn = warn
        self._id = conversation.id if conversation is not None else None
        self._name = name
        self._system = conversation.system if conversation is not None else ""
        self._messages = list(past)
        self._said: Said | None = None
        self._turn: BegunTurn | None = None
        self._reply: ReplyWriter | None = None
        self._answer: list[str] = []
        self._thinking: list[str] = []
        self._unsaved: list[Callable[[Store], object]] = []
        self._warned = False
        if store is not None and store.notice is not None:
            self._give_up(store.notice)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._save()
        if self._store is not None:
            with suppress(UserError, OSError):
                self._store.close()

    @property
    def conversation_id(self) -> str | None:
        """Where the messages are saved; None if they are not."""
        return self._id if self._store is not None and not self._unsaved else None

    @property
    def message_id(self) -> int | None:
        """The reply that is being written; None if it is not saved."""
        return self._reply.message_id if self._reply is not None else None

    def new_conversation(self) -> None:
        """The next message begins another conversation, under the same system prompt."""
        self._save()
        self._unsaved.clear()  # what belongs to the one before must not come into the new one
        self._id = self._name = None
        self._messages = []

    async def begin(self, text: str, *, model: str, system: str | None = None) -> Said:
        """Save what the user said, safely, and open the reply; what came before, as it stands now.

        system: None leaves the conversation its own. ConversationBusyError: another process is answering
        in the conversation, and does not come to an end.
        """
        self._save()
        self._answer, self._thinking = [], []
        self._turn = self._reply = None
        if self._store is None:
            return self._begin(text, model, system)
        import asyncio

        from ..store import ConversationBusyError

        started, noted, reply = time.monotonic(), False, 0
        while True:
            try:
                return self._begin(text, model, system)
            except ConversationBusyError as busy:
                if busy.reply_id != reply:  # another one's turn has come
                    started, reply = time.monotonic(), busy.reply_id
                waited = time.monotonic() - started
                if waited > BUSY_SECONDS:
                    raise
                if waited > NOTE_SECONDS and not noted:
                    noted = True
                    self._warn(f"waiting: {str(busy).partition(';')[0]}")
            await asyncio.sleep(POLL_SECONDS)

    def append(self, answer: str, thinking: str) -> None:
        """Add to the reply."""
        self._answer.append(answer)
        self._thinking.append(thinking)
        if self._reply is not None:
            reply = self._reply
            self._attempt(lambda _: reply.append(answer, thinking))

    def replace(self, answer: str, thinking: str) -> None:
        """The reply so far is this, and not what was appended."""
        self._answer, self._thinking = [answer], [thinking]
        if self._reply is not None:
            self._reply.replace(answer, thinking)

    def finish(self, outcome: Outcome) -> None:
        """Save the whole reply and how it ended."""
        said, reply = self._said, self._reply
        assert said is not None, "it has begun"
        self._said = self._reply = None
        answer, thinking = "".join(self._answer), "".join(self._thinking)
        self._messages = [*said.branch, said_now(said.text)]
        if answer or thinking:
            self._messages.append(said_now(answer, "assistant"))
        if reply is not None:
            self._unsaved.append(lambda _: reply.finish(*outcome))
        elif self._store is not None:

            def write(store: Store) -> None:
                with store.database.write(wait=RETRY_SECONDS):
                    name = self._id or self._name
                    turn = store.begin_turn(name, said.text, model=said.model, system=said.system)
                    turn.reply.replace(answer, thinking)
                    turn.reply.finish(*outcome)
                self._id = turn.conversation.id

            self._unsaved.append(write)
        self._save()

    def take_back(self) -> None:
        """The engine refused the message before a word came: it must not stand in the way of the next one."""
        turn, said = self._turn if self._reply is not None else None, self._said
        self._said = self._reply = None
        self._messages = list(said.branch) if said is not None else self._messages
        if turn is not None:
            self._system = turn.before.system
            self._unsaved.append(lambda store: store.take_back(turn))
            self._save()
            if not self._messages:
                self._id = None  # the conversation went with its only message

    def _begin(self, text: str, model: str, system: str | None) -> Said:
        """As `begin`, without waiting. ConversationBusyError."""
        if system is None and self._id is None:
            system = self._system
        said = Said(text, model, self._system if system is None else system, tuple(self._messages))
        if self._store is not None and not self._unsaved:
            from ..store import ConversationBusyError

            store = self._store
            try:
                turn = store.begin_turn(self._id or self._name, text, model=model, system=system)
            except ConversationBusyError:
                raise
            except (UserError, OSError) as error:
                self._failed(error)
            else:
                self._id, self._turn, self._reply = turn.conversation.id, turn, turn.reply
                said = said._replace(system=turn.conversation.system, branch=turn.branch)
        self._said, self._system = said, said.system
        return said

    def _save(self) -> None:
        """Carry out what is to be written, in order; what fails stays for the next time."""
        while self._unsaved and self._attempt(self._unsaved[0]):
            del self._unsaved[0]
            if self._warned and not self._unsaved:
                self._warned = False
                self._warn("the conversation is saved after all")

    def _attempt(self, action: Callable[[Store], Any]) -> bool:
        if self._store is None:
            return False
        try:
            action(self._store)
        except (UserError, OSError) as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: Exception) -> None:
        from ..store import StoreReadOnlyError

        if isinstance(error, StoreReadOnlyError):
            self._give_up(str(error))
        elif not self._warned:
            self._warned = True
            self._warn(f"the conversation is not saved: {error}")

    def _give_up(self, reason: str) -> None:
        if self._store is not None:
            with suppress(UserError, OSError):
                self._store.close()
        self._store = self._reply = None
        self._unsaved.clear()
        if not self._warned:
            self._warn(f"the conversation is not saved: {reason}")
