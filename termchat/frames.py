"""Room for the frames of calls, claimed in one piece.

CPython keeps the frames of a thread in pieces of memory of 16 KB, and gives a piece back as soon as the calls
in it have returned. Where calls go back and forth across the end of a piece, one is mapped and unmapped each
time; imports alone do so a thousand times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_VALUES = 1 << 14
"""Claimed by the frame, of 8 bytes each. Its piece is the next power of two in size, so about as much is left
to the calls below; what none of them uses is never touched.
"""


def with_room(function: Callable[P, T]) -> Callable[P, T]:
    """The function, changed so that all it calls finds room beside its frame."""
    function.__code__ = function.__code__.replace(co_stacksize=_VALUES)
    return function
