"""The interpreter as the program needs it: arguments and names of files are UTF-8, whatever the locale.

In a locale of another charset Python takes both for texts in that, and the C library does not always read it
as Python does: then there are files that cannot be opened at all. UTF-8 mode (PEP 540) keeps each byte as it
is, and has to be chosen when the interpreter starts.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

_ARGUMENTS = Path("/proc/self/cmdline")
"""As they are: Python has them as texts only, which may not be what was given."""


def ensure_utf8() -> None:
    """Start the interpreter once more, in UTF-8 mode, if it has taken names and arguments for something else.

    Where that cannot be done, or where `-X utf8` was given, it goes on as it is.
    """
    if sys.getfilesystemencoding() == "utf-8" or "utf8" in sys._xoptions or not _is_program():
        return
    with suppress(OSError, ValueError):
        interpreter, *arguments = _ARGUMENTS.read_bytes().split(b"\0")[:-1]
        os.execv(sys.executable, [interpreter, b"-X", b"utf8", *arguments])


def _is_program() -> bool:
    """Whether it was started for this program, and not for one that uses it as a module."""
    arguments = sys.argv[1:]
    return sys.orig_argv[len(sys.orig_argv) - len(arguments) :] == arguments and sys.argv[0] != "-c"
