"""Turns: what is said, queued, answered, stopped, answered again. Knows no widgets.

Each busy conversation has one pump, a task that answers what is queued, one message after another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ...store import ConversationBusyError, NotFoundError, StoredMessage, prompt_of
from ...thinking import OPEN, ThinkingSplitter
from ..engines.model_slot import EngineBridge
from ..engines.pool import Engines
from .collection import Chats, stored
from .conversation import HELD, Chat
from .listener import Listener
from .live_reply import LiveReply
from .store_thread import History
from .streaming import Relay

if TYPE_CHECKING:
    from engine import Message, SamplingParams

log = logging.getLogger(__name__)

ELSEWHERE_SECONDS = 0.5
"""From one look at a conversation in which another process answers to the next."""


class Turns:
    """The state machine of every conversation: idle, queued, prefill, decode, then idle or interrupted."""

    def __init__(
        self, engines: Engines, chats: Chats, history: History, relay: Relay, listener: Listener
    ) -> None:
        self._engines = engines
        self._chats = chats
        self._history = history
        self._relay = relay
        self._listener = listener
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, chat: Chat, text: str) -> None:
        """Send a text, or queue it while the conversation is busy."""
        chat.queue.append(text)
        self._listener.chat_changed(chat)
        if not chat.busy:
            self._spawn(chat, self._pump(chat))

    def take_back(self, chat: Chat) -> list[str]:
        """The queued texts, which are not sent any more."""
        texts, chat.queue = chat.queue, []
        self._listener.chat_changed(chat)
        return texts

    def stop(self, chat: Chat) -> list[str]:
        """Stop what is being answered, keeping what has come; the queued texts, which are sent no more."""
        chat.stopping = chat.busy
        if chat.waiting is not None:
            chat.waiting.cancel()
        for reply in chat.live.values():
            reply.stop()
        return self.take_back(chat)

    def regenerate(self, chat: Chat, message: StoredMessage, count: int = 1) -> None:
        """Answer again, beside the answer that is there; or answer a message of the user. count: at once."""
        parent = message.id if message.role == "user" else message.parent_id
        if parent is not None:
            self._turn(chat, self._answer(chat, parent, count))

    def edit(self, chat: Chat, message: StoredMessage, text: str) -> bool:
        """A new version of a message of the user, and its answer, beside the old ones.

        False: the conversation is busy, and the text is still the caller's.
        """

        async def turn() -> None:
            chat.queue.remove(text)
            try:
                changed = await self._chats.saving.edit(chat, message, text)
            except BaseException:
                chat.queue.insert(0, text)
                raise
            chat.put(changed)
            self._listener.chat_changed(chat)
            await self._answer(chat, changed.id, 1)

        if chat.busy:
            return False
        chat.queue.insert(0, text)  # until it is stored
        self._turn(chat, turn())
        return True

    def resume(self, chat: Chat, message: StoredMessage) -> None:
        """Go on with an answer that was interrupted."""
        self._turn(chat, self._continue(chat, message))

    @contextmanager
    def occupied(self, chat: Chat) -> Iterator[asyncio.Future[None]]:
        """While a conversation is busy with something else than an answer: done when it is to be stopped."""
        chat.sending, chat.error = True, ""
        chat.waiting = stopped = asyncio.get_running_loop().create_future()
        self._listener.chat_changed(chat)
        try:
            yield stopped
        finally:
            chat.waiting, chat.sending, chat.stopping = None, False, False
            self._listener.chat_changed(chat)
            if chat.queue:
                self._spawn(chat, self._pump(chat))

    def focus(self) -> None:
        """Let the conversation on screen win ties in its engine."""
        shown = self._chats.shown
        reply = shown.live.get(shown.leaf_id or 0) if shown is not None else None
        for bridge in self._engines.loaded:
            assert bridge.engine is not None, "it is loaded"
            mine = reply is not None and reply.bridge is bridge
            bridge.engine.focus(reply.stream if reply is not None and mine else None)

    async def close(self) -> None:
        """Stop everything and wait until it is saved."""
        for chat in self._chats.all:
            if chat.busy:
                self.stop(chat)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    def _turn(self, chat: Chat, turn: Coroutine[Any, Any, None]) -> None:
        """Begin a turn that is not in the queue, then go on with the queue. A busy conversation refuses."""
        if chat.busy:
            turn.close()
            self._listener.notify_user("this conversation is busy; Esc stops it")
            return
        self._spawn(chat, self._pump(chat, turn))

    def _spawn(self, chat: Chat, pump: Coroutine[Any, Any, None]) -> None:
        chat.sending, chat.error, chat.full, chat.cut = True, "", False, False
        task = asyncio.create_task(pump)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._listener.chats_changed()

    async def _pump(self, chat: Chat, turn: Coroutine[Any, Any, None] | None = None) -> None:
        try:
            while (turn is not None or chat.queue) and not chat.error:
                step, turn = turn, None
                await (step if step is not None else self._ask(chat))
                chat.stopping = False  # what is queued now came after the stop
        except NotFoundError as error:
            if chat.gone or await self._is_gone(chat):
                chat.error = "this conversation was deleted in another window; /undelete brings it back"
            else:
                chat.error = str(error)
        except (UserError, OSError, ValueError) as error:
            chat.error = str(error)
        except Exception as error:
            log.exception("a turn failed")
            chat.error = f"termchat has a fault: {type(error).__name__}: {error}; the log has the details"
        finally:
            chat.sending = chat.stopping = False
            self._listener.chat_changed(chat)
            self._listener.chats_changed()

    async def _ask(self, chat: Chat) -> None:
        """Store the first of the queued texts, before the engine sees it, and answer."""
        text = chat.queue.pop(0)
        try:
            message = await self._chats.commit(chat, text, self._engines.of(chat.model).reference)
        except ConversationBusyError:
            chat.queue.insert(0, text)
            await self._while_answered_elsewhere(chat)
        except BaseException:
            chat.queue.insert(0, text)
            raise
        else:
            await self._answer(chat, message.id, 1)

    async def _while_answered_elsewhere(self, chat: Chat) -> None:
        """Wait a little while another process answers in the same conversation; what it has said is shown."""
        if chat.stopping:
            return
        chat.busy_elsewhere = True
        chat.waiting = asyncio.ensure_future(asyncio.sleep(ELSEWHERE_SECONDS))
        try:
            await chat.waiting
            await self._chats.windows.read_again(chat)
        except asyncio.CancelledError:
            if not chat.stopping:
                raise
        finally:
            chat.waiting, chat.busy_elsewhere = None, False

    async def _is_gone(self, chat: Chat) -> bool:
        try:
            await self._history.call(lambda store: store.conversation(stored(chat)))
        except NotFoundError:
            return True
        return False

    async def _ready(self, chat: Chat) -> EngineBridge | None:
        """Its model, once it is loaded; None if the user stopped meanwhile. EngineUnavailableError."""
        chat.waiting = asyncio.ensure_future(self._engines.ready(chat.model))
        try:
            bridge = await chat.waiting
        except asyncio.CancelledError:
            if chat.stopping:
                return None
            raise
        finally:
            chat.waiting = None
        if not chat.model:  # the first message was stored before it was known what the default is
            await self._chats.set_model(chat, bridge.reference)
        return None if chat.stopping else bridge

    async def _answer(self, chat: Chat, parent: int, count: int) -> None:
        bridge = await self._ready(chat)
        if bridge is None or (engine := bridge.engine) is None:
            return
        await self._chats.saving.settle(chat)
        parent = self._chats.saving.now(parent)
        params = _params(chat, bridge)
        prompt = prompt_of(chat.branch(parent), chat.system)
        begun = await self._chats.saving.begin(chat, parent, bridge.reference, count)
        variables = bridge.template_vars()
        if count == 1:
            streams = [engine.generate(prompt, params, template_vars=variables)]
        else:
            streams = engine.generate_many(prompt, params, n=count, template_vars=variables)
        replies = []
        for (writer, row), stream in zip(begun, streams, strict=True):
            splitter = bridge.thinking.splitter()
            reply = LiveReply(writer, row, bridge, stream, splitter)
            chat.live[row.id] = reply
            chat.put(row)
            replies.append(reply)
        if count > 1:
            await self._chats.select(chat, replies[0].message_id)
        await self._relay_all(chat, replies)

    async def _continue(self, chat: Chat, message: StoredMessage) -> None:
        from engine import Message

        bridge = await self._ready(chat)
        if bridge is None or (engine := bridge.engine) is None:
            return
        params = _params(chat, bridge)
        inside = bool(message.thinking) and not message.text
        said: list[Message] = prompt_of(chat.branch(message.parent_id), chat.system)
        said.append(Message("assistant", f"{OPEN}{message.thinking}" if inside else message.text))
        splitter = ThinkingSplitter(inside=True) if inside else None  # a tag inside an answer is text
        writer = None
        if message.id < HELD:
            writer = await self._history.call(lambda store: store.resume_reply(message.id, flush_every=0))
        variables = bridge.template_vars()
        stream = engine.generate(said, params, continue_final=True, template_vars=variables)
        reply = LiveReply(writer, message, bridge, stream, splitter)
        chat.live[message.id] = reply
        assert chat.tree is not None, "its messages are shown"
        chat.tree[message.id] = replace(message, status="streaming")
        await self._relay_all(chat, [reply])

    async def _relay_all(self, chat: Chat, replies: list[LiveReply]) -> None:
        if chat.stopping:  # asked for while the request was made
            for reply in replies:
                reply.stop()
        self._listener.chat_changed(chat)
        self._listener.chats_changed()
        await self._relay.run(chat, replies)


def _params(chat: Chat, bridge: EngineBridge) -> SamplingParams:
    from ...setup import seeded

    return seeded(bridge.sampling(chat.sampling))
