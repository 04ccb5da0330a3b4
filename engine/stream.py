"""The consumer's side of a request: a mailbox that merges what is pending, and the stream that reads it."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from .commands import Answer, Outcome
from .types import Event, Finished, TextDelta


class Mailbox:
    """Events between the engine's threads and a reader on the event loop.

    A slow reader gets one large delta, never a long queue of small ones. check: raises where a reader that
    waits would never be woken.
    """

    def __init__(self, check: Callable[[], object] | None = None) -> None:
        self._check = check
        self._deltas: deque[TextDelta] = deque()
        self._final: Finished | Answer | None = None
        self._waiting = False  # a reader waits and nobody was told yet to wake it
        self._arrived = asyncio.Event()

    def put(self, event: Outcome) -> bool:
        """Take in an event; whether a reader has to be woken. From any thread, one at a time."""
        assert self._final is None, "nothing follows the final event"
        if isinstance(event, TextDelta):
            self._deltas.append(event)
        else:
            self._final = event
        if not self._waiting:
            return False
        self._waiting = False
        return True

    def wake(self) -> None:
        """Have the readers look again; on the loop's thread."""
        self._arrived.set()

    def take(self) -> Outcome | None:
        """The next event: all pending text as one delta, then the final event; None if there is none now."""
        final = self._final  # looked at before the deltas: all of them have come before it
        if self._deltas:
            return _merged([self._deltas.popleft() for _ in range(len(self._deltas))])
        return final

    async def get(self) -> Outcome:
        """The next event, once there is one."""
        while (event := self.take()) is None:
            if self._check is not None:
                self._check()
            self._arrived.clear()
            self._waiting = True  # before the last look: what comes after it wakes
            if not self._deltas and self._final is None:
                await self._arrived.wait()  # another reader (`aclose` from elsewhere) may be faster
        return event


def _merged(deltas: list[TextDelta]) -> TextDelta:
    if len(deltas) == 1:
        return deltas[0]
    logprobs = [entry for delta in deltas for entry in delta.logprobs or ()]
    return TextDelta(
        "".join(delta.text for delta in deltas),
        tuple(token for delta in deltas for token in delta.token_ids),
        tuple(logprobs) if deltas[0].logprobs is not None else None,
    )


class ResponseStream:
    """Events of one request: TextDelta any number of times, then exactly one Finished.

    Leaving `async with`, `aclose`, `abort` and dropping the stream all abort the request, if it still runs.
    id: the request's number, as in EngineSnapshot.conversations. finished: the final event, once it was read.
    """

    def __init__(self, id: int, mailbox: Mailbox, abort: Callable[[], object], engine: object = None) -> None:
        """abort: must not know the stream, which could not be dropped then. engine: is not, before this."""
        self.id = id
        self.finished: Finished | None = None
        self._mailbox = mailbox
        self._engine = engine
        self._abort = abort
        self._dropped = weakref.finalize(self, abort)
        self._dropped.atexit = False

    def abort(self) -> None:
        """Stop at the next step boundary; the final event still comes."""
        if self.finished is None:
            self._abort()

    async def aclose(self) -> None:
        """Abort and wait until the request has ended and given its memory back."""
        self.abort()
        await self.result()

    async def result(self) -> Finished:
        """Read to the end and return the final event."""
        while self.finished is None:
            await self._next()
        return self.finished

    def take(self) -> Event | None:
        """Read the next event if it is there already: for readers that look in now and then."""
        event = self._mailbox.take() if self.finished is None else None
        return None if event is None else self._seen(event)

    async def _next(self) -> Event:
        return self._seen(await self._mailbox.get())

    def _seen(self, event: Outcome) -> Event:
        assert not isinstance(event, Answer), "a stream has the number of a reply"
        if isinstance(event, Finished):
            self.finished = event
            self._engine = None
            self._dropped.detach()
        return event

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self.finished is not None:
            raise StopAsyncIteration
        return await self._next()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, GeneratorExit):  # of a task that is dropped with its loop: it can't wait
            self.abort()
        else:
            await self.aclose()
