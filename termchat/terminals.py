"""What a terminal can do, as far as its name in TERM says."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
