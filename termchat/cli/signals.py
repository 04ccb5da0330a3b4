"""SIGINT, SIGTERM and SIGHUP: the first one ends things in order, the second leaves at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

NOTICE_SECONDS = 0.2
"""So late a signal may be noticed while a key is waited for."""


class Interrupted(BaseException):
    """A signal arrived while nothing was being generated: unwind and leave with `exit_code`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """The shell's code for a program that a signal ended."""
        return 128 + self.number


class Signals:
    """What to do when a signal comes: by default raise Interrupted, or call what `calling` says.

    received: the first signal; None until then.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._action: Callable[[], object] | None = None
        self._last: Callable[[], object] | None = None

    def install(self) -> None:
        """Take over the signals, from the main thread. What was ignored stays so (nohup, `&` in sh)."""
        for number in HANDLED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    @contextmanager
    def calling(
        self, action: Callable[[], object] | None, last: Callable[[], object] | None = None
    ) -> Iterator[None]:
        """Within the block the first signal calls `action`; None: it raises Interrupted.

        last: called before a second one ends the process, also in blocks within this one: for what must not
        stay so, such as a terminal.
        """
        before, self._action, self._last = (self._action, self._last), action, last or self._last
        try:
            yield
        finally:
            self._action, self._last = before

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Within the block no call that waits for a key keeps a signal waiting.

        Python acts on a signal between two of its own steps, and where it interrupts a call of the system.
        Of one that comes right before such a call, or to another thread, it would hear with the next key.
        """
        before = signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, NOTICE_SECONDS, NOTICE_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def leave_at_once(self) -> None:
        """End the process without unwinding, for the moments in which there is nothing to save or to print.

        The interpreter's own way out waits for threads, and the engine's can be inside a load or a step of
        many seconds that Python cannot stop.
        """
        assert self.received is not None, "a signal asked for it"
        try:
            if self._last is not None:
                self._last()
        finally:
            os._exit(128 + self.received)

    def end(self) -> None:
        """The program is done: an exception during the interpreter's shutdown could only become noise."""
        self._action = self.leave_at_once

    def forget(self) -> None:
        """Treat the next signal as the first again; for a program that goes on after one."""
        self.received = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self.received = self.received is None, self.received or number
        if not first:
            self.leave_at_once()
        if self._action is None:
            raise Interrupted(number)
        self._action()
