"""What a step costs by its number of rows, from measured steps."""

from __future__ import annotations

import math

PACE = 0.3
"""Share of the newest step in the machine's pace."""

SHAPE = 0.05
"""Share of the newest step in the cost of its number of rows, once that is known."""

UNKNOWN = 0.25
"""What a further row costs, as a share of the average row, until one is seen: little, so one will be."""

BEYOND = 0.5
"""Share of the slope of what is known that goes on behind it: rows are tried before they are ruled out."""

STALE = 512
"""After so many steps without it, a number of rows is unknown again. So what did not pay is tried again."""

RARE = 32
"""After so many steps without it, what is known of a number of rows counts for little beside a new step."""

_FEW = 2
_JOIN_EVERY, _FORGET_EVERY = 16, 128


class StepCosts:
    """Relative costs of decode steps with 1 to `most` rows; between those that were seen, a straight line.

    The machine's pace, which other programs and longer conversations change, is a factor of its own: numbers
    of rows that are rarely seen stay comparable with those that often are.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._pace = 0.0
        self._costs = [0.0] * (most + 1)
        self._seen = [0] * (most + 1)
        self._last = [0] * (most + 1)  # the number of the step that last had so many rows
        self._steps = 0

    @property
    def known(self) -> bool:
        """Whether a step has been measured."""
        return self._pace > 0

    def of(self, rows: int) -> float:
        """The cost of a step in units that only ratios make sense of; 1 <= rows <= most."""
        return self._costs[rows]

    @property
    def pace(self) -> float:
        """Seconds that a unit of `of` takes now."""
        return self._pace

    def observe(self, rows: int, seconds: float) -> None:
        """Take in the duration of a decode step."""
        if not 1 <= rows <= self.most or not (seconds > 0 and math.isfinite(seconds)):
            return
        self._steps += 1
        if self._pace == 0:
            self._pace = seconds
            self._costs[rows] = 1.0
        seen = self._seen[rows]
        if self._steps - self._last[rows] > RARE:
            seen = min(seen, _FEW)
        self._last[rows] = self._steps
        if seen < 1 / SHAPE:
            self._seen[rows] = seen + 1
        # A step during which another program ran tells little, so it may not move things far.
        cost = self._costs[rows]
        relative = min(max(seconds / self._pace, cost / 4), cost * 4 if seen == 0 else cost * 2)
        self._costs[rows] = cost + max(SHAPE, 1 / (seen + 1)) * (relative - cost)
        self._pace += PACE * (min(seconds / self._costs[rows], 2 * self._pace) - self._pace)
        if seen < 1 / SHAPE or self._steps % _JOIN_EVERY == 0:
            self._join(rows)
        if self._steps % _FORGET_EVERY == 0:
            self._forget(rows)

    def _join(self, rows: int) -> None:
        """Straight lines from a number of rows to the nearest known ones, and on beyond the last one."""
        costs, seen = self._costs, self._seen
        below = next((other for other in range(rows - 1, 0, -1) if seen[other]), 0)
        above = next((other for other in range(rows + 1, self.most + 1) if seen[other]), 0)
        for low, high in ((below, rows), (rows, above)):
            if low and high:
                slope = (costs[high] - costs[low]) / (high - low)
                for between in range(low + 1, high):
                    costs[between] = costs[low] + slope * (between - low)
        if not below:
            for other in range(1, rows):
                costs[other] = costs[rows] * (1 - UNKNOWN * (rows - other) / rows)
        if not above:
            slope = UNKNOWN * costs[rows] / rows
            if below:
                first = next(other for other in range(1, rows) if seen[other])
                slope = max(0.0, BEYOND * (costs[rows] - costs[first]) / (rows - first))
            for other in range(rows + 1, self.most + 1):
                costs[other] = costs[rows] + slope * (other - rows)

    def _forget(self, rows: int) -> None:
        """What has not been seen for long is unknown again."""
        oldest = self._steps - STALE
        for other in range(1, self.most + 1):
            if self._seen[other] and self._last[other] <= oldest:
                self._seen[other] = 0
        self._join(rows)
        for other in range(1, self.most + 1):
            if self._seen[other]:
                self._join(other)
