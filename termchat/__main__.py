"""Entry point of `termchat` and `python -m termchat`."""

from __future__ import annotations

import os
import sys

from . import collector
from .frames import with_room


@with_room
def main() -> int:
    """Run the program; the exit code."""
    collector.pause()
    # numpy's BLAS has nothing to do here: its threads would spin for 70 ms before they sleep, and where few
    # are allowed it prints a page and sends itself SIGINT.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from .cli.main import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # before the program's own signal handling was in place
        return 130


if __name__ == "__main__":
    sys.exit(main())
