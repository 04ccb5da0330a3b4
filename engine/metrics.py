"""Latency and throughput by the definitions of the NVIDIA NIM benchmarking guide, on one monotonic clock.

TTFT = submit to the commit of the first token, queue included. E2E = submit to the last token.
ITL = (E2E - TTFT) / (tokens - 1). Tokens per second = (tokens - 1) / (E2E - TTFT).
Undefined values are None, never 0 or infinity.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from kernels.machine import runnable

from .types import Timings

WINDOW_SECONDS = 2.0
"""Span over which the rates of a snapshot are taken."""

_NEWEST = 0.1
"""Weight of the newest look at the other programs: 20 looks a second make an average of half a second."""

RECENT = 128
"""Steps and requests whose latencies a snapshot can show."""


def percentile(values: Sequence[float], fraction: float) -> float | None:
    """The nearest-rank percentile of unsorted values; None for none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def spread_intervals(token_times: Sequence[float]) -> list[float]:
    """Seconds between tokens; k tokens that came in one step count as k intervals of step / k."""
    intervals: list[float] = []
    index = 1
    while index < len(token_times):
        together = index
        while together + 1 < len(token_times) and token_times[together + 1] == token_times[index]:
            together += 1
        count = together - index + 1
        intervals += [(token_times[index] - token_times[index - 1]) / count] * count
        index = together + 1
    return intervals


def from_times(
    submit: float,
    scheduled: float | None,
    token_times: Sequence[float],
    *,
    bandwidth_gbs: float | None = None,
) -> Timings:
    """Timings of one request from its clock readings in seconds.

    submit: when it was handed in. scheduled: when its first chunk was planned, None if never. token_times:
    when each token was committed.
    """
    queue = None if scheduled is None else (scheduled - submit) * 1e3
    if len(token_times) == 0:
        return Timings(queue_ms=queue)
    token_times = [float(time) for time in token_times]
    first, last, intervals = token_times[0], token_times[-1], len(token_times) - 1
    decode = last - first
    p95 = percentile(spread_intervals(token_times), 0.95)
    return Timings(
        queue_ms=queue,
        prefill_ms=None if scheduled is None else (first - scheduled) * 1e3,
        ttft_ms=(first - submit) * 1e3,
        itl_ms=decode / intervals * 1e3 if intervals else None,
        itl_p95_ms=None if p95 is None else p95 * 1e3,
        e2e_ms=(last - submit) * 1e3,
        tokens_per_second=intervals / decode if intervals and decode > 0 else None,
        bandwidth_gbs=bandwidth_gbs,
    )


def rate_within(token_times: Sequence[float], window: tuple[float, float] | None) -> float | None:
    """Tokens a second of one request in the window of `EngineMetrics.window`; the parts make up its total.

    None where the request has no token in it. token_times: ascending, in seconds.
    """
    if window is None:
        return None
    first, last = window
    count = bisect_right(token_times, last) - bisect_right(token_times, first)
    return count / (last - first) if count else None


class EngineMetrics:
    """Running figures of the whole engine, fed once a step. Times in seconds, traffic in bytes."""

    def __init__(self) -> None:
        self.steps = 0
        self.last_step_rows = 0
        self.tokens_total = 0
        self.decode_bytes = 0
        self.decode_seconds = 0.0
        self.crowding = 0.0
        self.best_alone = 0.0  # bytes a second of the fastest decode step of one conversation
        self.first_tokens: deque[Timings] = deque(maxlen=RECENT)
        self.intervals: deque[float] = deque(maxlen=RECENT)
        self.interval_count = 0
        self._recent: deque[tuple[float, int]] = deque()  # (time, tokens) within the window
        self._recent_decode: deque[tuple[float, int, float]] = deque()  # (time, bytes, seconds)
        self._last_commit: float | None = None

    def step(self, now: float, seconds: float, rows: int, tokens: int, traffic: int, *, decode: bool) -> None:
        """Take in a committed step; decode: all its rows were single sampled tokens."""
        self.steps += 1
        self.last_step_rows = rows
        self.tokens_total += tokens
        if tokens:
            self._recent.append((now, tokens))
            if self._last_commit is not None:
                self.intervals.append(now - self._last_commit)
                self.interval_count += 1
            self._last_commit = now
        if decode:
            self.decode_bytes += traffic
            self.decode_seconds += seconds
            if rows == 1 and seconds > 0:  # of several, some reads may have come from caches
                self.best_alone = max(self.best_alone, traffic / seconds)
            self._recent_decode.append((now, traffic, seconds))
        self._trim(now)

    def look_around(self) -> None:
        """Take in how many threads of all programs want to run now; called now and then while steps run."""
        beyond = max(0, runnable() - (os.cpu_count() or 1))
        self.crowding += (beyond - self.crowding) * _NEWEST

    def first_token(self, submit: float, scheduled: float | None, now: float) -> None:
        """Take in the first token of a request."""
        self.first_tokens.append(from_times(submit, scheduled, [now]))

    def idle(self) -> None:
        """Nothing runs: the next token is not an interval after the last one."""
        self._last_commit = None
        self.crowding = 0.0
        self.last_step_rows = 0

    def window(self, now: float) -> tuple[float, float] | None:
        """First and last commit of the last moments; rates count tokens after the first. None when idle."""
        self._trim(now)
        if len(self._recent) < 2 or self._recent[-1][0] <= self._recent[0][0]:
            return None
        return self._recent[0][0], self._recent[-1][0]

    def tokens_per_second(self, now: float) -> float | None:
        """Tokens of all conversations a second over the last moments; None when idle."""
        window = self.window(now)
        if window is None:
            return None
        return sum(tokens for _, tokens in list(self._recent)[1:]) / (window[1] - window[0])

    def bandwidth_gbs(self, now: float) -> float | None:
        """Achieved traffic of recent decode steps, in GB/s."""
        self._trim(now)
        seconds = sum(seconds for _, _, seconds in self._recent_decode)
        return sum(traffic for _, traffic, _ in self._recent_decode) / seconds / 1e9 if seconds > 0 else None

    def _trim(self, now: float) -> None:
        for queue in (self._recent, self._recent_decode):
            while queue and queue[0][0] < now - WINDOW_SECONDS:
                queue.popleft()
