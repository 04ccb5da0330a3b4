"""Files that are mapped, and may be cut short by another program while they are read."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterable

import numpy as np

from . import available
from .library import load


class MappedFiles:
    """Guards mappings while they live: what their files no longer have reads as zeros.

    Without a guard reading it ends the process (SIGBUS), with no word about why.
    """

    def __init__(self, mappings: Iterable[mmap.mmap]) -> None:
        self._numbers: list[int] = []
        for mapping in mappings if available() else ():
            number = load().native_guard(np.frombuffer(mapping, np.uint8).ctypes.data, len(mapping))
            if number >= 0:
                weakref.finalize(mapping, load().native_unguard, number).atexit = False
                self._numbers.append(number)

    @property
    def lost(self) -> bool:
        """Whether something was read that was no longer there."""
        return any(load().native_is_lost(number) for number in self._numbers)
