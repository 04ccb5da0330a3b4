"""Events on their way from the engine's threads to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from .stream import Mailbox
from .types import Event

Events = list[tuple[Mailbox, Event]]


class Outbox:
    """Collects events and forwards them together.

    Waking an event loop writes to a socket, which hands over the interpreter: the loop's thread keeps it
    until all consumers have read, and whoever woke the loop waits that long. So a thread of the outbox's own
    does it for the engine thread, which pays for a lock and goes on to its next step.

    forward: takes events to the loop, by `deliver` there; False if the loop is closed.
    """

    def __init__(self, forward: Callable[[Events], bool]) -> None:
        self._forward = forward
        self._emitted: deque[tuple[Mailbox, Event]] = deque()
        self._sent: SimpleQueue[Events | None] = SimpleQueue()
        self._lock = threading.Lock()  # what is taken first is forwarded first
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def emit(self, mailbox: Mailbox, event: Event) -> None:
        """Take in an event; nobody sees it before it is sent. From any thread."""
        self._emitted.append((mailbox, event))

    def send(self) -> None:
        """Have what was emitted forwarded. From any thread; events of a mailbox stay in order."""
        with self._lock:
            events: Events = []
            while self._emitted:
                events.append(self._emitted.popleft())
            if events and self._closed:
                self._forward(events)
            elif events:
                self._sent.put(events)

    def close(self) -> None:
        """Wait until everything sent is forwarded and the thread has ended; from now on `send` forwards."""
        with self._lock:
            self._closed = True
        self._sent.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (events := self._sent.get()) is not None and self._forward(events):
            pass


def deliver(events: Events) -> None:
    """Put each event in its mailbox; on the loop's thread, so in order."""
    for mailbox, event in events:
        mailbox.put(event)


def call_into(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> bool:
    """Call a function on the loop's thread, from another one; False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return False
    return True
