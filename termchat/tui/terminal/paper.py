"""A terminal as the file that is drawn on, and how long one that takes nothing is waited for."""

from __future__ import annotations

import io
import os
import select

from ...charset import charset, encoded

LEAVING_SECONDS = 0.5
"""So long a terminal that takes nothing more is waited for when the program must end."""


class Paper(io.TextIOBase):
    """A terminal to draw on: all of a text is written, or, where the terminal is `gone`, none of it.

    One that takes nothing, such as a connection that hangs, is waited for, but in no way that the end of the
    program would have to wait for, too: it is opened anew, as the mode of the one that the shell has given is
    the shell's.
    """

    def __init__(self, fileno: int) -> None:
        self._fileno = fileno
        self._written = _opened_anew(fileno)
        self._charset = charset()
        self._waiting: list[str] = []
        self._hurried = False
        self.gone = False
        self.full = False  # it takes nothing now

    def fileno(self) -> int:
        """The terminal."""
        return self._fileno

    def isatty(self) -> bool:
        """It is one."""
        return True

    def hurry(self) -> None:
        """From now on a terminal that takes nothing for `LEAVING_SECONDS` is gone. From any thread."""
        self._hurried = True

    def write(self, text: str) -> int:
        """Take a text, to be drawn by `flush`."""
        self._waiting.append(text)
        return len(text)

    def flush(self) -> None:
        """Draw what was written."""
        data, self._waiting = memoryview(encoded("".join(self._waiting), self._charset)), []
        while data and not self.gone:
            try:
                data = data[os.write(self._written, data) :]
            except BlockingIOError:
                self.full, hurried = True, self._hurried
                self.gone = not has_room(self._written, LEAVING_SECONDS) and hurried
            except OSError:
                self.gone = True  # nothing can be seen any more; the program ends by its signal
        self.full = False


def has_room(fileno: int, seconds: float) -> bool:
    """Whether a terminal takes something, within a time."""
    poll = select.poll()
    poll.register(fileno, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def _opened_anew(fileno: int) -> int:
    """The same terminal, written to without waiting; itself where it cannot be opened (another user's)."""
    try:
        return os.open(os.ttyname(fileno), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return fileno
