"""Lines from the terminal, edited while they are typed; keys that come while none is read wait."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import termios
from collections.abc import Iterator

from ..charset import charset
from ..terminals import ends_at_once, is_background, wait_for_foreground
from .signals import Interrupted, Signals


class LineEditor:
    """`input`, with its line editing and history where Python has them, for any bytes."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._keeping = False
        self._left = False
        if isinstance(sys.stdin, io.TextIOWrapper):  # by most locales it would refuse bytes that are no text
            sys.stdin.reconfigure(encoding=charset(), errors="surrogateescape")
        self._edits = False
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - `input` finds it

            self._edits = sys.stdin.fileno() == 0  # of another terminal it reads lines as they come

    def read(self, prompt: str) -> str:
        """A line. EOFError: the user leaves. Interrupted."""
        if self._left:
            raise EOFError
        with (
            self._signals.calling(self._interrupted),
            self._signals.noticed(),
            self._in_turn(),
            contextlib.redirect_stdout(sys.__stdout__),
            self._echo(),
        ):
            return input(prompt)

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Within the block a program that goes on in the background (`bg`) stands still again, before a key
        of the other one stops it while it reads.
        """
        before = signal.signal(signal.SIGCONT, lambda *_: wait_for_foreground(0))
        try:
            yield
        finally:
            signal.signal(signal.SIGCONT, before)

    def _interrupted(self) -> None:
        """A signal, while a line is read; the editor would set the terminal on its way out."""
        assert self._signals.received is not None, "there was a signal"
        if is_background(0):
            self._signals.leave_at_once()
        raise Interrupted(self._signals.received)

    @contextlib.contextmanager
    def keeping_keys(self) -> Iterator[None]:
        """Within the block, keys that come while no line is read are not drawn into what is shown, and wait
        as they are. A terminal that makes lines of them takes a Ctrl-D for itself: the editor gets a NUL.
        """
        if not self._edits:
            yield
            return
        found = termios.tcgetattr(0)
        kept = [*found[:3], found[3] & ~(termios.ICANON | termios.ECHO), *found[4:6], [*found[6]]]
        kept[6][termios.VMIN], kept[6][termios.VTIME] = 1, 0

        def as_found() -> None:
            with contextlib.suppress(termios.error):  # the terminal is gone
                if not is_background(0):
                    termios.tcsetattr(0, termios.TCSANOW, found)

        try:
            with self._signals.calling(None, last=as_found):
                self._left = ends_at_once(0)
                termios.tcsetattr(0, termios.TCSANOW, kept)
                self._keeping = True
                yield
        finally:
            self._keeping = False
            as_found()

    @contextlib.contextmanager
    def _echo(self) -> Iterator[None]:
        """While a line is read: the editor draws what is typed only where the terminal would."""
        if not self._keeping:
            yield
            return

        def echo(on: int) -> None:
            with contextlib.suppress(termios.error):
                mode = termios.tcgetattr(0)
                mode[3] = mode[3] & ~termios.ECHO | on
                termios.tcsetattr(0, termios.TCSANOW, mode)

        echo(termios.ECHO)
        try:
            yield
        finally:
            echo(0)
