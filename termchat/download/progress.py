"""Progress of a download: events, and the one line that shows them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..units import format_bytes, format_duration

Phase = Literal["resolve", "wait", "download", "verify", "unpack"]
"""Asking where it is; another process is downloading it; bytes arrive; sha256; out of its package."""

_WINDOW_S = 5.0
_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """done, total: bytes of this phase; rate: bytes per second over the last seconds. None is not known."""

    phase: Phase
    done: int = 0
    total: int | None = None
    rate: float | None = None

    @property
    def eta(self) -> float | None:
        """Seconds left at this rate."""
        return (self.total - self.done) / self.rate if self.rate and self.total is not None else None


ProgressCallback = Callable[[Progress], None]
"""Gets about ten events a second. An exception it raises ends the download; a later one resumes it."""


class Meter:
    """Turns byte counts into events: at most ten a second, `done` never moves backwards within a phase."""

    def __init__(
        self, callback: ProgressCallback | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._callback = callback
        self._clock = clock
        self._phase: Phase | None = None
        self._highest = 0
        self._sent = 0.0
        self._samples: deque[tuple[float, int]] = deque()

    def report(self, phase: Phase, done: int = 0, total: int | None = None) -> None:
        """Note `done` bytes of `total`; the first and the last of a phase are always passed on."""
        if self._callback is None:
            return
        now = self._clock()
        if phase != self._phase:
            self._phase, self._highest, self._sent = phase, 0, float("-inf")
            self._samples.clear()
        if self._samples and done < self._samples[-1][1]:  # begun anew: its rate counts from here
            self._samples.clear()
        self._samples.append((now, done))
        while now - self._samples[0][0] > _WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()
        self._highest = max(self._highest, done)
        if now - self._sent < _EVERY_S and done != total:
            return
        self._sent = now
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        rate = (after - before) / (end - start) if end > start else None
        self._callback(Progress(phase, self._highest, total, rate))


def format_progress(progress: Progress, bar: int = 0, ascii_only: bool = False) -> str:
    """One line for a progress event, with a bar of `bar` cells where the total is known."""
    words = {
        "resolve": "looking for the file",
        "wait": "another termchat is downloading it",
        "download": "downloading",
        "verify": "verifying",
        "unpack": "unpacking",
    }
    parts = [words[progress.phase]]
    if progress.total:
        share = min(1.0, progress.done / progress.total)
        if bar > 0:
            full, empty = ("#", ".") if ascii_only else ("█", "░")
            parts.append(full * int(share * bar) + empty * (bar - int(share * bar)))
        parts.append(f"{format_bytes(progress.done)} of {format_bytes(progress.total)}")
        parts.append(f"{int(share * 100):3d} %")
    elif progress.done:
        parts.append(format_bytes(progress.done))
    if progress.phase == "download" and progress.rate is not None:
        parts.append(f"{format_bytes(progress.rate)}/s")
        if progress.eta is not None and progress.done != progress.total:
            parts.append(f"{format_duration(progress.eta)} left")
    return "  ".join(parts)
