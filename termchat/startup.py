"""What makes the program start fast: the garbage collector rests, and calls find room for their frames.

Nothing that starting makes is garbage (modules, and a vocabulary of 100,000 texts), but the collector would
look through all of it dozens of times. CPython keeps the frames of a thread in pieces of memory of 16 KB, and
gives a piece back as soon as the calls in it have returned. Where calls go back and forth across the end of a
piece, one is mapped and unmapped each time; imports alone do so a thousand times.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

YOUNG = 10_000
"""New objects until the collector looks through them. A frame of the interface makes thousands that hardly
ever stay; with Python's 700 it stopped engine and screen for 0.3 to 0.5 % of the time.
"""

_VALUES = 1 << 14
"""Claimed by a frame with room, of 8 bytes each. Its piece is the next power of two in size, so about as much
is left to the calls below; what none of them uses is never touched.
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


def with_room(function: Callable[P, T]) -> Callable[P, T]:
    """The function, changed so that all it calls finds room beside its frame."""
    function.__code__ = function.__code__.replace(co_stacksize=_VALUES)
    return function
