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
    # The threads of numpy's BLAS have nothing to do here, and would spin for 70 ms before they sleep.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    try:
        from .cli.main import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # before the program's own signal handling was in place
        return 130


if __name__ == "__main__":
    sys.exit(main())
