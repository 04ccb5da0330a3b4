"""Copied texts, on their way to where other programs find them.

The terminal is asked to keep a text (OSC 52 of xterm's control sequences). What stands between may keep that
to itself: screen passes on only what is wrapped for it, and tmux only if it is told to by its settings, but
takes a text from its own command. Some terminals do not know the request, or have it switched off; so where
there is a desktop, its own program gets the text, too.
"""

from __future__ import annotations

import base64
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping

from ..background import Worker

log = logging.getLogger(__name__)

SCREEN_CHARACTERS = 240
"""screen drops a control string of more than 256 characters (MAXSTR of old ones)."""
PROGRAM_SECONDS = 5.0

TMUX = (
    ("tmux", "load-buffer", "-w", "-"),
    ("tmux", "load-buffer", "-"),
)  # -w since 3.2: to the terminal, too
WAYLAND = (("wl-copy",),)
X11 = (("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input"))
MACOS = (("pbcopy",),)
WINDOWS = (("clip.exe",),)

Commands = tuple[tuple[str, ...], ...]
"""Programs that do the same; the first that is there and succeeds is enough."""


def request(text: str, *, screen: bool) -> str:
    """What asks the terminal to keep a text. screen: it stands between, and is to pass that on."""
    data = base64.b64encode(text.encode("utf-8", "replace")).decode()
    asked = f"\x1b]52;c;{data}\a"
    if not screen:
        return asked
    pieces = (asked[at : at + SCREEN_CHARACTERS] for at in range(0, len(asked), SCREEN_CHARACTERS))
    return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)


def keepers(environ: Mapping[str, str], platform: str = sys.platform) -> Iterator[Commands]:
    """The programs that keep texts, by what is there of tmux and desktops."""
    remote = "SSH_CONNECTION" in environ or "SSH_TTY" in environ
    if environ.get("TMUX"):
        yield TMUX
    if environ.get("WAYLAND_DISPLAY"):
        yield WAYLAND
    elif environ.get("DISPLAY"):  # also one that ssh has brought here
        yield X11
    if platform == "darwin" and not remote:
        yield MACOS
    if environ.get("WSL_DISTRO_NAME") and not remote:
        yield WINDOWS


class Clipboard:
    """Gives texts to programs, one after another and beside everything else."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._keepers = tuple(keepers(environ))
        self._worker = Worker("clipboard") if self._keepers else None

    def keep(self, text: str) -> None:
        """Have the programs keep a text; what is wrong with them is only logged."""
        if self._worker is not None:
            self._worker.post(lambda: [_kept(commands, text) for commands in self._keepers])


def _kept(commands: Commands, text: str) -> bool:
    """Whether one of the programs has taken a text."""
    for command in commands:
        if shutil.which(command[0]) is None:
            continue
        codec = "utf-16-le" if commands is WINDOWS else "utf-8"
        try:  # a session of its own: it may have to keep the text when the terminal is closed
            subprocess.run(
                command,
                input=text.encode(codec, "replace"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PROGRAM_SECONDS,
                check=True,
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            log.info("%s does not take what is copied: %s", command[0], error)
        else:
            return True
    return False
