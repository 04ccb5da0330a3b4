"""A terminal as it was found: which one it is, its modes, and how it is left as if nothing had been."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .paper import LEAVING_SECONDS, has_room

LEAVE = (
    "\x1b[?2026l\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"
    "\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l\x1b[0m"
)
"""Ends every mode that the interface may have begun."""
NOTE_WHEEL, KEEP_WHEEL, GIVE_WHEEL_BACK = "\x1b[?1007s", "\x1b[?1007l", "\x1b[?1007r"
"""Where the mouse is the terminal's, its wheel sends no arrows: they would go through earlier prompts."""
CLEAR = "\x1b[0m\x1b[H\x1b[2J"
"""Before our screen is left: tmux puts rows of one that has grown into the shell's (3.3, window enlarged)."""

HOW_WIDE = "\x1b[2;1H▽\x1b[6n\x1b[2;1H\x1b[K"
"""Asks for the cells of characters of ambiguous width. In the second row, as what would be the answer in the
first one is also sent by keys (F3 with shift or alt).
"""

WHAT_ARE_YOU = "\x1b[c"
"""Primary device attributes: what every terminal answers, behind all that it has sent before."""
_ANSWER = re.compile(rb"\x1b\[\?[\d;]*c")
ANSWER_SECONDS, SILENT_SECONDS = 2.0, 1.0
"""So long one that answers is waited for; one that has not answered its first question by then never does."""


@contextmanager
def unharmed() -> Iterator[None]:
    """Within the block the keys that end a program end the one that has the terminal, and not this one.

    A handler that does nothing, rather than none: a program that is started gets the usual ones back.
    """
    numbers = (signal.SIGINT, signal.SIGQUIT)
    handlers = {number: signal.getsignal(number) for number in numbers}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def drawn_on() -> int:
    """The terminal that is drawn on, whatever of the standard streams was led elsewhere."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(ValueError, OSError):
            assert stream is not None
            if stream is not None and os.isatty(number := stream.fileno()):
                return number
    return os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)


def modes_of(fileno: int) -> list[Any] | None:
    """The modes of a terminal; None if it is none."""
    try:
        return termios.tcgetattr(fileno)
    except termios.error:
        return None


def set_modes(fileno: int, modes: list[Any] | None) -> None:
    """Set what `modes_of` has found, if that was something and the terminal is still there."""
    if modes is not None:
        with suppress(termios.error, OSError):
            termios.tcsetattr(fileno, termios.TCSANOW, modes)


def hear_out(fileno: int, answers: int, seconds: float) -> None:
    """Take in what a terminal sends up to its last answer to `WHAT_ARE_YOU`, of so many, within a time."""
    heard, deadline = b"", time.monotonic() + seconds
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    with suppress(OSError):
        while len(_ANSWER.findall(heard)) < answers and (left := deadline - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                data = os.read(fileno, 65_536)
                if not data:
                    return
                heard += data


def restore(read: int, drawn: int, modes: list[Any] | None, first: str) -> None:
    """Write what ends all modes of a terminal and set it as it was. Waits for nothing and raises nothing.

    Of a terminal that takes nothing, what it has not taken so far is thrown away: it may go on later.

    first: what is written before that, for a screen of ours that is the one shown.
    """
    with suppress(OSError, ValueError, termios.error):
        if not has_room(drawn, LEAVING_SECONDS):
            termios.tcflush(drawn, termios.TCOFLUSH)
        if has_room(drawn, 0):
            os.write(drawn, (first + LEAVE).encode())
    set_modes(read, modes)
