"""Events on their way from the engine's threads to their readers on the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from .commands import Answer, Outcome
from .stream import Mailbox
from .types import EngineError, Finished

log = logging.getLogger(__name__)

CLOSED = EngineError("engine_failed", "the engine is closed")

_TRIES = (1, 2, 3)


class Outbox:
    """Puts events into the mailboxes of their numbers, those of a step together, and has readers woken.

    A number is open until its last event has come, which is put once however often it is emitted; `end` gives
    one to all that are open, whatever became of the thread that should have. So nobody waits for ever.

    Waking an event loop writes to a socket, which hands over the interpreter: the loop's thread keeps it
    until all consumers have read, and whoever woke the loop waits that long. So a thread of the outbox's own
    does it for the engine thread, which pays for a lock and goes on to its next step. A reader that looks in
    now and then instead of waiting costs neither of them anything.

    forward: takes the mailboxes of readers that wait to the loop, by `wake` there. check: raises for a reader
    that is not there.
    """

    def __init__(
        self, forward: Callable[[list[Mailbox]], object], check: Callable[[], object] | None = None
    ) -> None:
        self._forward = forward
        self._check = check
        self._open: dict[int, tuple[Mailbox, Finished | Answer]] = {}
        self._emitted: deque[tuple[int, Outcome]] = deque()
        self._waited_for: list[Mailbox] = []
        self._to_wake: SimpleQueue[list[Mailbox] | None] = SimpleQueue()
        self._lock = threading.RLock()  # `end` sends
        self._ended: EngineError | None = None  # what happens to numbers from now on
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        """Start the thread. RuntimeError: the system gives none."""
        self._thread.start()

    def open(self, id: int, last: Finished | Answer) -> Mailbox:
        """A mailbox for the events of this number. last: its last event if nobody else makes one."""
        mailbox = Mailbox(self._check)
        with self._lock:
            if self._ended is None:
                self._open[id] = (mailbox, last)
            else:
                mailbox.put(_with_error(last, self._ended))
        return mailbox

    def forget(self, id: int) -> None:
        """Nobody reads what becomes of this number any more."""
        with self._lock:
            self._open.pop(id, None)

    def emit(self, id: int, event: Outcome) -> None:
        """Take in an event; nobody sees it before it is sent. From any thread."""
        self._emitted.append((id, event))

    def send(self, *, wake_here: bool = False) -> None:
        """Put what was emitted into the mailboxes. From any thread; events of a mailbox stay in order.

        wake_here: this thread has no step to go on to, so it wakes the readers itself, which is sooner.
        """
        waited_for: list[Mailbox] = []
        with self._lock:
            while self._emitted:
                id, event = self._emitted[0]
                if id in self._open:  # else it has had its last event, or nobody reads it
                    self._put(id, event)
                del self._emitted[0]
            if wake_here:
                waited_for, self._waited_for = self._waited_for, []
            elif self._waited_for:
                self._to_wake.put(self._waited_for)
                self._waited_for = []
        if waited_for:
            try:
                self._forward(waited_for)
            except BaseException:
                self._to_wake.put(waited_for)
                raise

    def end(self, error: EngineError | None) -> None:
        """The engine has ended: so has everything that is open. error: why, if nobody asked for it.

        May be called again, to finish what failed half-way.
        """
        with self._lock:
            self._ended = error or CLOSED
            try:
                self.send()
            finally:
                for id, (mailbox, last) in list(self._open.items()):
                    if error is None and isinstance(last, Finished):
                        self._put(id, replace(last, reason="aborted"))
                    else:
                        self._put(id, _with_error(last, self._ended))
                    self._waited_for += [mailbox]
                self._to_wake.put(self._waited_for)
                self._to_wake.put(None)

    def abandon(self, error: EngineError) -> None:
        """End everything in a forked process: the other threads are gone, and with them who held the lock."""
        self._lock = threading.RLock()
        self._to_wake = SimpleQueue()
        self.end(error)

    def join(self, seconds: float) -> None:
        """Wait for the thread to end after `end`: everyone is woken then."""
        if self._thread.ident is not None:  # else it could not be started
            self._thread.join(seconds)

    def _put(self, id: int, event: Outcome) -> None:
        mailbox, _ = self._open[id]
        last = isinstance(event, (Finished, Answer))
        if mailbox.put(event):  # whatever fails from here on, it has it
            self._waited_for += [mailbox]
        if last:
            del self._open[id]

    def _run(self) -> None:
        mailboxes: list[Mailbox] | None = []
        while mailboxes is not None:
            for _ in _TRIES:
                try:
                    if not mailboxes:
                        mailboxes = self._to_wake.get()
                    if mailboxes:
                        self._forward(mailboxes)
                        mailboxes = []
                    break
                except BaseException as error:
                    fault = error
            else:
                log.error("readers could not be woken", exc_info=fault)
                mailboxes = []


def _with_error(last: Finished | Answer, error: EngineError) -> Finished | Answer:
    if isinstance(last, Answer):
        return replace(last, error=error)
    return replace(last, reason="error", error=error)


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
