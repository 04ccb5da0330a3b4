"""Events on their way from the engine's threads to their readers on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from .stream import Mailbox
from .types import Event


class Outbox:
    """Puts events into their mailboxes, those of a step together, and has the readers that wait woken.

    Waking an event loop writes to a socket, which hands over the interpreter: the loop's thread keeps it
    until all consumers have read, and whoever woke the loop waits that long. So a thread of the outbox's own
    does it for the engine thread, which pays for a lock and goes on to its next step. A reader that looks in
    now and then instead of waiting costs neither of them anything.

    forward: takes the mailboxes of readers that wait to the loop, by `wake` there; False if it is closed.
    """

    def __init__(self, forward: Callable[[list[Mailbox]], bool]) -> None:
        self._forward = forward
        self._emitted: deque[tuple[Mailbox, Event]] = deque()
        self._waited_for: SimpleQueue[list[Mailbox] | None] = SimpleQueue()
        self._lock = threading.Lock()  # what is taken first is put first
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def emit(self, mailbox: Mailbox, event: Event) -> None:
        """Take in an event; nobody sees it before it is sent. From any thread."""
        self._emitted.append((mailbox, event))

    def send(self) -> None:
        """Put what was emitted into the mailboxes. From any thread; events of a mailbox stay in order."""
        with self._lock:
            waited_for = []
            while self._emitted:
                mailbox, event = self._emitted.popleft()
                if mailbox.put(event):
                    waited_for.append(mailbox)
            if waited_for and self._closed:
                self._forward(waited_for)
            elif waited_for:
                self._waited_for.put(waited_for)

    def close(self) -> None:
        """Wait until everyone is woken and the thread has ended; from now on `send` itself forwards."""
        with self._lock:
            self._closed = True
        self._waited_for.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (mailboxes := self._waited_for.get()) is not None and self._forward(mailboxes):
            pass


def wake(mailboxes: list[Mailbox]) -> None:
    """Wake the readers of these mailboxes; on the loop's thread."""
    for mailbox in mailboxes:
        mailbox.wake()


def call_into(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> bool:
    """Call a function on the loop's thread, from another one; False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return False
    return True
