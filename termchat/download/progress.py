"""Progress of a download: events, and the one line that shows them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from .. import units

Phase = Literal["resolve", "wait", "download", "pause", "verify", "unpack"]
"""Asking where it is; another process downloads it; bytes arrive; before the next try; sha256; unzipping."""

BEAT_SECONDS = 0.1
"""How often what waits looks up."""

_WINDOW_S = 5.0
_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """done, total: bytes of this phase; rate: bytes per second over the last seconds. None is not known.

    note: why nothing comes.
    """

    phase: Phase
    done: int = 0
    total: int | None = None
    rate: float | None = None
    note: str = ""

    @property
    def eta(self) -> float | None:
        """Seconds left at this rate."""
        return (self.total - self.done) / self.rate if self.rate and self.total is not None else None


ProgressCallback = Callable[[Progress], None]
"""Gets about ten events a second, also while nothing comes. An exception it raises ends the download at once;
a later one resumes it.
"""


class Meter:
    """Turns byte counts into events: at most ten a second, `done` never moves backwards within a phase.

    Whatever waits does so by `beat` and `pause`, so that the callback can end it.
    """

    def __init__(
        self, callback: ProgressCallback | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._callback = callback
        self._clock = clock
        self._phase: Phase | None = None
        self._highest = 0
        self._sent = 0.0
        self._samples: deque[tuple[float, int]] = deque()
        self._last = Progress("resolve")

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
        self._last = Progress(phase, self._highest, total, rate)
        self._callback(self._last)

    def beat(self, note: str = "") -> None:
        """Nothing new; note: why. Called about every BEAT_SECONDS."""
        now = self._clock()
        if self._callback is not None and now - self._sent >= _EVERY_S:
            self._sent = now
            self._callback(replace(self._last, rate=None, note=note))

    def pause(self, seconds: float, reason: str, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait before the next try, counting down."""
        end = self._clock() + seconds
        before = self._last
        while (left := end - self._clock()) > 0:
            if self._callback is not None:
                note = f"{reason}; next try in {units.duration(math.ceil(left))}"
                self._callback(replace(before, phase="pause", rate=None, note=note))
            sleep(min(left, BEAT_SECONDS))


class Whole(Meter):
    """A meter for one file after the other of a model: bytes and total are those of all its files."""

    def __init__(self, meter: Meter, total: int | None) -> None:
        super().__init__(None)
        self._meter = meter
        self._total = total
        self._before = 0

    def done(self, size: int) -> None:
        """A file of this size is here."""
        self._before += size

    def report(self, phase: Phase, done: int = 0, total: int | None = None) -> None:
        """Pass on bytes of the file at hand as bytes of all."""
        whole = phase == "download"
        self._meter.report(phase, done + self._before * whole, self._total if whole else total)

    def beat(self, note: str = "") -> None:
        """Pass it on."""
        self._meter.beat(note)

    def pause(self, seconds: float, reason: str, sleep: Callable[[float], None] = time.sleep) -> None:
        """Pass it on."""
        self._meter.pause(seconds, reason, sleep)


def format_progress(progress: Progress, bar: int = 0, ascii_only: bool = False) -> str:
    """One line for a progress event, with a bar of `bar` cells where the total is known."""
    words = {
        "resolve": "looking for the file",
        "wait": "another termchat is downloading it",
        "download": "downloading",
        "pause": "waiting",
        "verify": "verifying",
        "unpack": "unpacking",
    }
    parts = [words[progress.phase]]
    if progress.total:
        share = min(1.0, progress.done / progress.total)
        if bar > 0:
            full, empty = ("#", ".") if ascii_only else ("█", "░")
            parts.append(full * int(share * bar) + empty * (bar - int(share * bar)))
        parts.append(f"{units.size(progress.done)} of {units.size(progress.total)}")
        parts.append(f"{int(share * 100):3d} %")
    elif progress.done:
        parts.append(units.size(progress.done))
    if progress.note:
        parts.append(progress.note)
    if progress.phase == "download" and progress.rate is not None:
        parts.append(f"{units.size(progress.rate)}/s")
        if progress.eta is not None and progress.done != progress.total:
            parts.append(f"{units.duration(progress.eta)} left")
    return "  ".join(parts)
