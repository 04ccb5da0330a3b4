"""Whether processes that are waited for still compute: by the processor time that they use."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

SECONDS = 6.0
"""A rank that is stopped, or ranks that all wait for each other, hang after so long."""

LOOK = 1.0
"""Seconds between two looks."""

_LEAST = 3
"""Ticks (1/100 s) of processor time in a look, of all ranks, that count as computing."""


class Used(NamedTuple):
    """State of a process (R runs, D waits for a disk, T is stopped) and ticks of processor time it used."""

    state: str
    ticks: int


def used(pid: int) -> Used | None:
    """Of a process; None where the system does not say (proc(5))."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return Used(words[0], int(words[11]) + int(words[12]))


class Stall:
    """Looks now and then at processes that should be computing.

    Nothing says how long a step may take, so that is no measure. But who computes uses a processor, or wants
    to, or waits for a file; what uses none for `SECONDS` waits for what will not come. Time in which this
    process itself was stopped does not count.
    """

    def __init__(self) -> None:
        self._ticks: dict[int, int] = {}
        self._last = time.monotonic()
        self._idle = 0.0
        self._stopped: dict[int, float] = {}

    def begin(self) -> None:
        """Something is asked of the processes."""
        self._last, self._idle = time.monotonic(), 0.0
        self._stopped.clear()

    def look(self, pids: list[int]) -> int | None:
        """Index of a process that hangs, as far as that can be told; None: they compute."""
        now = time.monotonic()
        elapsed = min(now - self._last, 2 * LOOK)
        if elapsed < LOOK / 2:
            return None
        self._last = now
        found = [used(pid) for pid in pids]
        if None in found:
            return None
        busy, spent = False, 0
        for pid, process in zip(pids, found, strict=True):
            assert process is not None
            busy |= process.state in "RD"
            spent += process.ticks - self._ticks.get(pid, process.ticks - _LEAST)
            self._ticks[pid] = process.ticks
            stopped = self._stopped.get(pid, 0.0) + elapsed if process.state in "Tt" else 0.0
            self._stopped[pid] = stopped
            if stopped >= SECONDS:
                return pids.index(pid)
        self._idle = 0.0 if busy or spent >= _LEAST else self._idle + elapsed
        return 0 if self._idle >= SECONDS else None
