"""What a terminal can do, as far as its name in TERM says, whether anybody is there, and whose turn it is."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import termios
import time
from array import array
from collections.abc import Callable, Mapping

_BARE = re.compile(r"(?:vt\d+|linux|ansi|pcansi|scoansi|cons25\w*|wsvt25|mach|hurd|sun)(?:[-+].*)?")
_ALL_COLOURS = re.compile(
    r"(?:xterm-)?(?:kitty|ghostty|alacritty|foot|wezterm|contour|rio)(?:[-+].*)?|.*-(?:direct\d*|truecolor)"
)
_LINES = ("", "dumb", "unknown")
TMUX_NUMBER = 84
"""tmux's answer to the question which terminal it is (secondary device attributes): the code of T."""


def obeys_sequences(environ: Mapping[str, str]) -> bool:
    """Whether a terminal moves its cursor and changes its style when it is told to; else it prints that, as
    those of editors do.
    """
    return environ.get("TERM", "") not in _LINES


def is_bare(environ: Mapping[str, str]) -> bool:
    """Whether a terminal is one of hardware or a system's console: it has the signs of ASCII and few more,
    and may show a sequence that came after it, such as xterm's operating system commands, as text.
    """
    return _BARE.fullmatch(environ.get("TERM", "")) is not None


def has_all_colours(environ: Mapping[str, str]) -> bool:
    """Whether a terminal shows 24 bits of colour. COLORTERM, which else says so, is lost over ssh."""
    return _ALL_COLOURS.fullmatch(environ.get("TERM", "")) is not None


def may_be_screen(environ: Mapping[str, str]) -> bool:
    """Whether screen stands between, or, over ssh, perhaps tmux: both call themselves so, and only here would
    TMUX and STY tell them apart.
    """
    return "TMUX" not in environ and ("STY" in environ or environ.get("TERM", "").startswith("screen"))


def ends_at_once(fd: int) -> bool:
    """Whether a Ctrl-D is the first thing that came to a terminal that makes lines: `script` sends one where
    its own input is at its end. It is taken then; what else was typed stays.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    waiting = array("i", [0])
    if not poll.poll(0) or fcntl.ioctl(fd, termios.FIONREAD, waiting) or waiting[0]:
        return False
    return not os.read(fd, 1)


_HEARD_SECONDS, _STOPPED_SECONDS = 0.1, 0.01
"""So late a signal has been heard, also one that came to another thread; so long a stop takes at least."""


def wait_for_foreground(fd: int, leaves: Callable[[], bool] = lambda: False) -> None:
    """Be stopped, as often as the shell lets the program go on, while another one has the terminal (`&`,
    `bg`, `timeout`).

    The system does that to whoever reads or sets the terminal, but within the call: there a signal to end is
    not heard before the user brings the program to the foreground. leaves: whether to wait no more.
    """
    while is_background(fd) and not leaves():
        began = time.monotonic()
        signal.raise_signal(signal.SIGTTOU)
        if time.monotonic() - began < _STOPPED_SECONDS:
            return  # it is ignored: by us, or by the system where nobody could let us go on
        time.sleep(_HEARD_SECONDS)


def is_background(fd: int) -> bool:
    """Whether another program has the terminal: to set its modes now would be to set that one's."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:  # not a terminal, or not ours
        return False
