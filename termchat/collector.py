"""The garbage collector rests while the program starts.

Nothing that starting makes is garbage (modules, and a vocabulary of 100,000 texts), but the collector would
look through all of it dozens of times.
"""

from __future__ import annotations

import gc

YOUNG = 10_000
"""New objects until the collector looks through them. A frame of the interface makes thousands that hardly
ever stay; with Python's 700 it stopped engine and screen for 0.3 to 0.5 % of the time.
"""


def pause_collector() -> None:
    """From the first line of the program on."""
    gc.disable()


def resume_collector() -> None:
    """From now on it collects, but not what is there now."""
    if not gc.isenabled():
        settle_collector()
        gc.enable()


def settle_collector() -> None:
    """What is there now stays, so the collector leaves it alone."""
    gc.freeze()
    gc.set_threshold(YOUNG)
