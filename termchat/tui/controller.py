"""The conversations: what is said, queued, answered, stopped, changed. Knows no widgets.

Each busy conversation has one pump, a task that answers what is queued, one message after another. A live
reply has one relay, which takes what has come, sleeps, and takes what has come since: nothing happens per
token.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import UserError
from ..store import Conversation, NotFoundError, ReplyWriter, Store, StoredMessage, prompt_of
from ..thinking import OPEN, ThinkingSplitter
from .bridge import EngineBridge
from .chat import Chat, LiveReply
from .history import History

if TYPE_CHECKING:
    from engine import AsyncEngine, Finished, Message, SamplingParams

log = logging.getLogger(__name__)

RELAY_SECONDS = 0.08
"""How often new text of replies is taken over: of all at the same moments, so that the loop wakes once."""

SEED_BITS = 53
"""Seeds drawn here can be read from JSON by every language."""


class Listener(Protocol):
    """Who is told of changes, on the event loop."""

    def chats_changed(self) -> None:
        """Conversations came, went, or look different in a list."""

    def chat_changed(self, chat: Chat) -> None:
        """Messages, branch, queue or state of a conversation changed."""

    def reply_grew(self, chat: Chat, reply: LiveReply, answer: str, thinking: str) -> None:
        """New text of a live reply."""

    def reply_ended(self, chat: Chat) -> None:
        """A reply of a conversation has ended."""

    def notify_user(self, text: str, *, error: bool = False) -> None:
        """A sentence for the user."""


class Controller:
    """All conversations, the one used last first. `shown` is the one on screen."""

    def __init__(
        self,
        bridge: EngineBridge,
        history: History,
        listener: Listener,
        *,
        system: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """system, params: of new conversations, as given on the command line."""
        self.bridge = bridge
        self.history = history
        self.chats: list[Chat] = []
        self.shown: Chat | None = None
        self._listener = listener
        self._system = system
        self._params = dict(params or {})
        self._tasks: set[asyncio.Task[None]] = set()

    # Conversations

    async def load(self) -> None:
        """Read the list of conversations."""
        rows = await self.history.call(lambda store: store.list_conversations())
        for row in rows:
            if self.find(row.id) is None:  # one may have been begun meanwhile
                self._adopt(row)
        self._listener.chats_changed()

    def new_chat(self) -> Chat:
        """A conversation that is stored with its first message; the one that has none yet, if there is."""
        chat = next((chat for chat in self.chats if chat.id is None and not chat.busy), None)
        if chat is None:
            chat = Chat(system=self._system, params=self._params, tree={})
            self.chats.insert(0, chat)
            self._listener.chats_changed()
        return chat

    def discard(self, chat: Chat) -> None:
        """Take a conversation out of the list that has nothing in it."""
        if chat.id is None and not chat.busy and not chat.draft and chat is not self.shown:
            self.chats.remove(chat)
            self._listener.chats_changed()

    async def show(self, chat: Chat) -> None:
        """Put a conversation on screen, reading its messages if it was not read yet."""
        self.shown = chat
        chat.unread = False
        await self.read(chat)
        if self.shown is chat:
            self._focus(chat)
            self._listener.chat_changed(chat)
            self._listener.chats_changed()

    async def read(self, chat: Chat) -> None:
        """Read a conversation's messages."""
        if chat.tree is None and (id := chat.id) is not None:
            tree = await self.history.call(lambda store: store.tree(id))
            if chat.tree is None:
                chat.tree = {message.id: message for message in tree}

    def find(self, id: str) -> Chat | None:
        """The conversation with this id."""
        return next((chat for chat in self.chats if chat.id == id), None)

    async def rename(self, chat: Chat, title: str) -> None:
        """Give it another title; an empty one is made of its first message."""
        if (id := chat.id) is not None:
            chat.take(await self.history.call(lambda store: store.rename(id, title)))
            self._listener.chats_changed()

    async def delete(self, chat: Chat) -> None:
        """Take it out of the list; `undelete` brings it back."""
        self.stop(chat)
        if (id := chat.id) is not None:
            await self.history.call(lambda store: store.delete(id))
        if chat in self.chats:
            self.chats.remove(chat)
        self._listener.chats_changed()

    async def undelete(self) -> Chat:
        """Bring back the conversation deleted last. NotFoundError."""
        row = await self.history.call(lambda store: store.undelete())
        chat = self.find(row.id) or self._adopt(row, first=True)
        self._listener.chats_changed()
        return chat

    async def fork(self, chat: Chat, message_id: int | None = None) -> Chat:
        """A new conversation with a copy of the branch up to a message."""
        id = _stored(chat)
        copy = self._adopt(await self.history.call(lambda store: store.fork(id, message_id)), first=True)
        self._listener.chats_changed()
        return copy

    async def add_conversation(self, make: Callable[[Store], Conversation]) -> Chat:
        """A conversation that `make` puts into the store."""
        chat = self._adopt(await self.history.call(make), first=True)
        self._listener.chats_changed()
        return chat

    async def set_system(self, chat: Chat, system: str) -> None:
        """Set its system prompt."""
        chat.system = system
        if (id := chat.id) is not None:
            await self.history.call(lambda store: store.set_system(id, system))
        self._listener.chat_changed(chat)

    async def set_params(self, chat: Chat, params: Mapping[str, Any]) -> None:
        """Set its own sampling settings."""
        chat.params = dict(params)
        if (id := chat.id) is not None:
            await self.history.call(lambda store: store.set_params(id, params))
        self._listener.chat_changed(chat)

    # Turns

    def submit(self, chat: Chat, text: str) -> None:
        """Send a text, or queue it while the conversation is busy."""
        chat.queue.append(text)
        self._listener.chat_changed(chat)
        if not chat.busy:
            self._spawn(chat, self._pump(chat))

    def stop(self, chat: Chat) -> list[str]:
        """Stop what is being answered, keeping what has come; the queued texts, which are sent no more."""
        chat.stopping = chat.busy
        back, chat.queue = chat.queue, []
        if chat.waiting is not None:
            chat.waiting.cancel()
        for reply in chat.live.values():
            reply.stream.abort()
        self._listener.chat_changed(chat)
        return back

    def regenerate(self, chat: Chat, message: StoredMessage, count: int = 1) -> None:
        """Answer again, beside the answer that is there; or answer a message of the user. count: at once."""
        parent = message.id if message.role == "user" else message.parent_id
        if parent is not None:
            self._turn(chat, self._answer(chat, parent, count))

    def edit(self, chat: Chat, message: StoredMessage, text: str) -> None:
        """A new version of a message of the user, and its answer, beside the old ones."""

        async def turn() -> None:
            changed = await self.history.call(lambda store: store.edit(message.id, text))
            await self._refresh(chat)
            self._put(chat, changed)
            await self._answer(chat, changed.id, 1)

        self._turn(chat, turn())

    def resume(self, chat: Chat, message: StoredMessage) -> None:
        """Go on with an answer that was interrupted."""
        self._turn(chat, self._continue(chat, message))

    async def select(self, chat: Chat, message_id: int) -> None:
        """Show the branch through this message."""
        chat.leaf_id = chat.leaf_below(message_id)
        await self.history.call(lambda store: store.select(message_id))
        self._focus(chat)
        self._listener.chat_changed(chat)

    def observe(self) -> None:
        """Take over what the engine says of the live replies, and save what is due."""
        snapshot = self.bridge.snapshot()
        phases = {row.id: row.state for row in snapshot.conversations} if snapshot is not None else {}
        changed = False
        for chat in self.chats:
            for reply in chat.live.values():
                writer = reply.writer
                self.history.post(lambda store, writer=writer: writer.tick())  # type: ignore[misc]
                if reply.phase != "decode" and phases.get(reply.stream.id) == "prefill":
                    changed = changed or reply.phase != "prefill"
                    reply.phase = "prefill"
        if changed:
            self._listener.chats_changed()

    async def close(self) -> None:
        """Stop everything and wait until it is saved."""
        for chat in self.chats:
            if chat.busy:
                self.stop(chat)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    # Inside

    def _adopt(self, row: Conversation, *, first: bool = False) -> Chat:
        chat = Chat()
        chat.take(row)
        self.chats.insert(0 if first else len(self.chats), chat)
        return chat

    def _focus(self, chat: Chat) -> None:
        """Let the conversation on screen win ties in the engine."""
        if self.shown is chat and self.bridge.engine is not None:
            reply = chat.live.get(chat.leaf_id or 0)
            self.bridge.engine.focus(reply.stream if reply is not None else None)

    def _turn(self, chat: Chat, turn: Coroutine[Any, Any, None]) -> None:
        """Begin a turn that is not in the queue, then go on with the queue. A busy conversation refuses."""
        if chat.busy:
            turn.close()
            self._listener.notify_user("this conversation is busy; Esc stops it")
            return
        self._spawn(chat, self._pump(chat, turn))

    def _spawn(self, chat: Chat, pump: Coroutine[Any, Any, None]) -> None:
        chat.sending, chat.error, chat.full = True, "", False
        task = asyncio.create_task(pump)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._listener.chats_changed()

    async def _pump(self, chat: Chat, turn: Coroutine[Any, Any, None] | None = None) -> None:
        try:
            while (turn is not None or chat.queue) and not chat.error:
                step, turn = turn, None
                if step is not None:
                    await step
                else:
                    user = await self._commit(chat, chat.queue[0])
                    await self._answer(chat, user.id, 1)
                chat.stopping = False  # what is queued now came after the stop
        except (UserError, OSError, ValueError) as error:
            chat.error = str(error)
        except Exception as error:
            log.exception("a turn failed")
            chat.error = f"termchat has a fault: {type(error).__name__}: {error}; the log has the details"
        finally:
            chat.sending = chat.stopping = False
            self._listener.chat_changed(chat)
            self._listener.chats_changed()

    async def _commit(self, chat: Chat, text: str) -> StoredMessage:
        """Store what the user said, before the engine sees it."""
        model, system, params, id = self.bridge.reference, chat.system, chat.params, chat.id

        def commit(store: Store) -> tuple[Conversation, StoredMessage]:
            with store.database.write():
                name = id
                if name is None:
                    name = store.create_conversation(model=model, system=system, params=params).id
                message = store.add_message(name, "user", text, model=model)
                return store.conversation(name), message

        row, message = await self.history.call(commit)
        if chat.queue and chat.queue[0] == text:
            chat.queue.pop(0)
        chat.take(row)
        self._put(chat, message)
        self.chats.sort(key=lambda other: other is not chat)  # stable: it moves to the top
        self._listener.chats_changed()
        return message

    def _put(self, chat: Chat, message: StoredMessage) -> None:
        """Add a message; it ends the branch shown."""
        if chat.tree is None:
            chat.tree = {}
        chat.tree[message.id] = message
        chat.leaf_id = message.id
        self._listener.chat_changed(chat)

    async def _refresh(self, chat: Chat) -> None:
        id = _stored(chat)
        chat.take(await self.history.call(lambda store: store.conversation(id)))

    async def _engine(self, chat: Chat) -> AsyncEngine | None:
        """The engine, once it is loaded; None if the user stopped waiting. EngineUnavailableError."""
        waiting: asyncio.Future[AsyncEngine] = asyncio.ensure_future(self.bridge.ready())
        chat.waiting = waiting
        try:
            return await waiting
        except asyncio.CancelledError:
            if chat.stopping:
                return None
            raise
        finally:
            chat.waiting = None

    async def _answer(self, chat: Chat, parent: int, count: int) -> None:
        engine = await self._engine(chat)
        if engine is None or chat.stopping:
            return
        params = self._params_of(chat)
        prompt = prompt_of(chat.branch(parent), chat.system)
        id, model = _stored(chat), self.bridge.reference

        def begin(store: Store) -> list[ReplyWriter]:
            with store.database.write():
                return [store.begin_reply(id, parent, model) for _ in range(count)]

        writers = await self.history.call(begin)
        variables = self.bridge.template_vars()
        if count == 1:
            streams = [engine.generate(prompt, params, template_vars=variables)]
        else:
            streams = engine.generate_many(prompt, params, n=count, template_vars=variables)
        rows = await self.history.call(lambda store: [store.message(writer.message_id) for writer in writers])
        replies = []
        for writer, row, stream in zip(writers, rows, streams, strict=True):
            reply = LiveReply(writer, row, stream, ThinkingSplitter(inside=self.bridge.thinks_at_once))
            chat.live[row.id] = reply
            self._put(chat, row)
            replies.append(reply)
        if count > 1:
            await self.select(chat, rows[0].id)
        await self._relay_all(chat, replies)

    async def _continue(self, chat: Chat, message: StoredMessage) -> None:
        from engine import Message

        engine = await self._engine(chat)
        if engine is None or chat.stopping:
            return
        params = self._params_of(chat)
        inside = bool(message.thinking) and not message.text
        said: list[Message] = prompt_of(chat.branch(message.parent_id), chat.system)
        said.append(Message("assistant", f"{OPEN}{message.thinking}" if inside else message.text))
        splitter = ThinkingSplitter(inside=True) if inside else None  # a tag inside an answer is text
        writer = await self.history.call(lambda store: store.resume_reply(message.id))
        stream = engine.generate(said, params, continue_final=True, template_vars=self.bridge.template_vars())
        reply = LiveReply(writer, message, stream, splitter)
        chat.live[message.id] = reply
        assert chat.tree is not None, "its messages are shown"
        chat.tree[message.id] = replace(message, status="streaming")
        self._listener.chat_changed(chat)
        await self._relay_all(chat, [reply])

    def _params_of(self, chat: Chat) -> SamplingParams:
        params = self.bridge.sampling(chat.sampling)
        if params.seed is None:
            params = replace(params, seed=secrets.randbits(SEED_BITS))
        return params

    async def _relay_all(self, chat: Chat, replies: list[LiveReply]) -> None:
        if chat.stopping:  # asked for while the request was made
            for reply in replies:
                reply.stream.abort()
        self._focus(chat)
        self._listener.chats_changed()
        results = await asyncio.gather(
            *(self._relay(chat, reply) for reply in replies), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _relay(self, chat: Chat, reply: LiveReply) -> None:
        from engine import TextDelta

        finished: Finished | None = None
        try:
            async for event in reply.stream:
                if isinstance(event, TextDelta):
                    if reply.phase != "decode":
                        reply.phase = "decode"
                        self._listener.chats_changed()
                    reply.tokens += len(event.token_ids)
                    self._grow(chat, reply, *reply.push(event.text))
                    await asyncio.sleep(RELAY_SECONDS - time.monotonic() % RELAY_SECONDS)
            self._grow(chat, reply, *reply.finish())
            finished = reply.stream.finished
        finally:
            reply.stream.abort()
            await self._end(chat, reply, finished)

    def _grow(self, chat: Chat, reply: LiveReply, answer: str, thinking: str) -> None:
        if not (answer or thinking):
            return
        self.history.post(lambda store: reply.writer.append(answer, thinking))
        self._listener.reply_grew(chat, reply, answer, thinking)

    async def _end(self, chat: Chat, reply: LiveReply, finished: Finished | None) -> None:
        """Store how a reply ended. finished: None if the program itself failed."""
        from engine import as_dict

        reason = finished.reason if finished is not None else "error"
        status: Any = {"error": "error", "aborted": "interrupted"}.get(reason, "done")
        error = finished.error if finished is not None else None
        metrics = {}
        if finished is not None:
            metrics = {**as_dict(finished.usage), **as_dict(finished.timings), "seed": finished.seed}
        if error is not None:
            chat.error = error.message
            chat.full = error.code in ("prompt_too_long", "never_fits")
            if not reply.text and not reply.thinking:
                status = "interrupted"  # an empty reply is no reply: it goes
        elif reason == "context":
            chat.full = True
        assert chat.tree is not None, "its replies are in it"
        before = chat.tree[reply.message_id]
        try:
            row = await self.history.call(lambda store: reply.writer.finish(status, reason, metrics))
        except (UserError, OSError) as failure:
            self._listener.notify_user(f"the reply is not saved: {failure}", error=True)
            row = replace(
                before,
                text=reply.text,
                thinking=reply.thinking,
                status=status,
                finish_reason=reason,
                metrics=metrics,
            )
        chat.live.pop(reply.message_id, None)
        if row is not None:
            chat.tree[row.id] = row
        else:
            del chat.tree[reply.message_id]
            if chat.leaf_id == reply.message_id and before.parent_id is not None:
                chat.leaf_id = chat.leaf_below(before.parent_id)
        chat.unread = chat.unread or self.shown is not chat
        self._listener.chat_changed(chat)
        self._listener.chats_changed()
        self._listener.reply_ended(chat)


def _stored(chat: Chat) -> str:
    if chat.id is None:
        raise NotFoundError("this conversation has no message yet")
    return chat.id
