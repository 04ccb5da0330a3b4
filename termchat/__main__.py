"""Entry point of `termchat` and `python -m termchat`."""

from __future__ import annotations

import sys

from . import collector


def main() -> int:
    """Run the program; the exit code."""
    collector.pause()
    try:
        from .cli.main import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # before the program's own signal handling was in place
        return 130


if __name__ == "__main__":
    sys.exit(main())
