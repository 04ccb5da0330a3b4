"""Entry point of `termchat` and `python -m termchat`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` looks for modules in the current folder first: whatever lies there would be run.
    _own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = [folder for place, folder in enumerate(sys.path) if place or folder == _own]

import signal
from typing import TYPE_CHECKING

from .collector import pause_collector
from .interpreter import ensure_utf8

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def _log_unraisable(ignored: UnraisableHookArgs) -> None:
    """What Python prints of errors that it ignores: of an object, say, that a signal has left half-made.

    The signal itself is one of them where it came while an object was dropped: it comes again, as a second.
    """
    import logging

    from .cli.signals import Interrupted

    error = ignored.exc_value
    if isinstance(error, Interrupted):
        signal.raise_signal(error.number)
    logging.getLogger("termchat").warning("ignored in %r", ignored.object, exc_info=error)


def main() -> int:
    """Run the program; the exit code."""
    ensure_utf8()
    pause_collector()
    sys.unraisablehook = _log_unraisable
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the program's own handling is in place, Ctrl-C ends it as it does others: without a word.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # numpy's BLAS has nothing to do here: its threads would spin for 70 ms before they sleep, and where few
    # are allowed it prints a page and sends itself SIGINT.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Texts are tokenized one by one, so threads of the tokenizers' own have nothing to do either.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Textual's own switches are none of this program's, and some of them end it.
    for name in [name for name in os.environ if name.startswith("TEXTUAL")]:
        del os.environ[name]
    try:
        from .cli.main import run
    except ImportError as error:
        sys.stderr.write(
            f"termchat: a library that termchat needs can't be imported: {error}; install it again\n"
        )
        return 1
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
