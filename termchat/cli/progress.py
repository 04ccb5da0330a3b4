"""How far something has come, on standard error: a line that changes, or a line now and then."""

from __future__ import annotations

import time
from typing import Self

from .output import Messages

REDRAW_SECONDS = 0.1
NOTE_SECONDS = 5.0


class ProgressLine:
    """On a terminal that draws one line that changes, and is gone at the end; elsewhere notes, or nothing.

    every: seconds between notes; None: there are none. Used as a context, it takes the line away.
    """

    def __init__(self, messages: Messages, every: float | None = NOTE_SECONDS) -> None:
        self._messages = messages
        self._pause = REDRAW_SECONDS if messages.draws else every
        self._said = time.monotonic()
        self._drawn = False

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Say how far it is, if it is time again, or at once."""
        now = time.monotonic()
        if self._pause is None or (not at_once and now - self._said < self._pause):
            return
        self._said = now
        if self._messages.draws:
            self._drawn = True
            self._messages.progress(text)
        else:
            self._messages.note(text)

    def end(self) -> None:
        """Take the line away, if there is one."""
        if self._drawn:
            self._drawn = False
            self._messages.progress("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.end()
