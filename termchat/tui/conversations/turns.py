"""Turns: what is said, queued, stopped, answered again, one after another. Knows no widgets.

Each busy conversation has one pump, a task that answers what is queued, one message after another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import UserError, fault
from ...messages import StoredMessage
from ...store import ConversationBusyError, NotFoundError
from ..engines.pool import EnginePool
from .answering import Answering
from .collection import Conversations
from .conversation import Conversation
from .listener import Listener
from .store_thread import StoreThread
from .streaming import Streaming

log = logging.getLogger(__name__)

ELSEWHERE_SECONDS = 0.5
"""From one look at a conversation in which another process answers to the next."""

DELETED = "this conversation was deleted in another window; /undelete brings it back"


class Turns:
    """The state machine of every conversation: idle, queued, prefill, decode, then idle or interrupted."""

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
        self._listener = listener
        self._tasks: set[asyncio.Task[None]] = set()
        self.answering = Answering(engines, conversations, store, streaming, listener)

    def submit(self, conversation: Conversation, text: str) -> None:
        """Send a text, or queue it while the conversation is busy."""
        conversation.queue.append(text)
        self._listener.conversation_changed(conversation)
        if not conversation.busy:
            self._spawn(conversation, self._pump(conversation))

    def take_back(self, conversation: Conversation) -> list[str]:
        """The queued texts, which are not sent any more."""
        texts, conversation.queue = conversation.queue, []
        self._listener.conversation_changed(conversation)
        return texts

    def stop(self, conversation: Conversation) -> list[str]:
        """Stop what is being answered, keeping what has come; the queued texts, which are sent no more."""
        conversation.stopping = conversation.busy
        if conversation.waiting is not None:
            conversation.waiting.cancel()
        for reply in conversation.live.values():
            reply.stop()
        return self.take_back(conversation)

    def regenerate(self, conversation: Conversation, message: StoredMessage, count: int = 1) -> list[int]:
        """Answer again, beside the answer that is there; or answer a message of the user. count: at once.

        A list that gets the ids of the answers when they begin, all together.
        """
        parent = message.id if message.role == "user" else message.parent_id
        ids: list[int] = []
        if parent is not None:
            self._turn(conversation, self.answering.answer(conversation, parent, count, ids))
        return ids

    def edit(self, conversation: Conversation, message: StoredMessage, text: str) -> bool:
        """A new version of a message of the user, and its answer, beside the old ones.

        False: the conversation is busy, and the text is still the caller's.
        """

        async def turn() -> None:
            if conversation.stopping:  # it was taken back before it began
                return
            conversation.queue.remove(text)
            try:
                changed = await self._conversations.saving.edit(conversation, message, text)
            except BaseException:
                conversation.queue.insert(0, text)
                raise
            conversation.put(changed)
            self._listener.conversation_changed(conversation)
            await self.answering.answer(conversation, changed.id)

        if conversation.busy:
            return False
        conversation.queue.insert(0, text)  # until it is stored
        self._turn(conversation, turn())
        return True

    def resume(self, conversation: Conversation, message: StoredMessage) -> None:
        """Go on with an answer that was interrupted."""
        self._turn(conversation, self.answering.go_on(conversation, message))

    @contextmanager
    def occupied(self, conversation: Conversation) -> Iterator[asyncio.Future[None]]:
        """While a conversation is busy with something else than an answer: done when it is to be stopped."""
        conversation.sending, conversation.error = True, ""
        conversation.waiting = stopped = asyncio.get_running_loop().create_future()
        self._listener.conversation_changed(conversation)
        try:
            yield stopped
        finally:
            conversation.waiting, conversation.sending, conversation.stopping = None, False, False
            self._listener.conversation_changed(conversation)
            if conversation.queue:
                self._spawn(conversation, self._pump(conversation))

    def focus(self) -> None:
        """Let the conversation on screen win ties in its engine."""
        shown = self._conversations.shown
        reply = shown.live.get(shown.leaf_id or 0) if shown is not None else None
        for slot in self._engines.loaded:
            assert slot.engine is not None, "it is loaded"
            mine = reply is not None and reply.slot is slot
            slot.engine.focus(reply.stream if reply is not None and mine else None)

    async def close(self) -> None:
        """Stop everything and wait until it is saved."""
        for conversation in self._conversations.all:
            if conversation.busy:
                self.stop(conversation)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    def _turn(self, conversation: Conversation, turn: Coroutine[Any, Any, None]) -> None:
        """Begin a turn that is not in the queue, then go on with the queue. A busy conversation refuses."""
        if conversation.busy:
            turn.close()
            self._listener.notify_user("this conversation is busy; Esc stops it")
            return
        self._spawn(conversation, self._pump(conversation, turn))

    def _spawn(self, conversation: Conversation, pump: Coroutine[Any, Any, None]) -> None:
        conversation.sending, conversation.error, conversation.full, conversation.cut = True, "", False, False
        task = asyncio.create_task(pump)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._listener.conversations_changed()

    async def _pump(self, conversation: Conversation, turn: Coroutine[Any, Any, None] | None = None) -> None:
        try:
            while (turn is not None or conversation.queue) and not conversation.error:
                step, turn = turn, None
                await (step if step is not None else self._ask(conversation))
                conversation.stopping = False  # what is queued now came after the stop
        except NotFoundError as error:
            if conversation.gone or await self._is_gone(conversation):
                conversation.error = DELETED
            else:
                conversation.error = str(error)
        except (UserError, OSError, ValueError) as error:
            conversation.error = str(error)
        except Exception as error:
            log.exception("a turn failed")
            conversation.error = fault(error)
        finally:
            conversation.sending = conversation.stopping = False
            self._listener.conversation_changed(conversation)
            self._listener.conversations_changed()

    async def _ask(self, conversation: Conversation) -> None:
        """Store the first of the queued texts, before the engine sees it, and answer."""
        text = conversation.queue.pop(0)
        try:
            model = self._engines.of(conversation.model).reference
            message = await self._conversations.commit(conversation, text, model)
        except ConversationBusyError:
            conversation.queue.insert(0, text)
            await self._while_answered_elsewhere(conversation)
        except BaseException:
            conversation.queue.insert(0, text)
            raise
        else:
            await self.answering.answer(conversation, message.id)

    async def _while_answered_elsewhere(self, conversation: Conversation) -> None:
        """Wait a little while another process answers in the same conversation; what it has said is shown."""
        if conversation.stopping:
            return
        conversation.busy_elsewhere = True
        conversation.waiting = asyncio.ensure_future(asyncio.sleep(ELSEWHERE_SECONDS))
        try:
            await conversation.waiting
            await self._conversations.windows.read_again(conversation)
        except asyncio.CancelledError:
            if not conversation.stopping:
                raise
        finally:
            conversation.waiting, conversation.busy_elsewhere = None, False

    async def _is_gone(self, conversation: Conversation) -> bool:
        try:
            await self._store.call(lambda store: store.conversation(conversation.stored_id))
        except NotFoundError:
            return True
        return False
