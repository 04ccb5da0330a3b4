"""A plot of times in one or a few rows that never loses a spike."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.segment import Segment
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from .kept_rows import KeptRows

STEPS = " ▁▂▃▄▅▆▇█"
ASCII_STEPS = " .:-=+*%#"


def peaks(values: Sequence[float], first: int, each: int) -> list[float]:
    """Return the largest of every `each` values; groups end at multiples of `each`, counted from `first` on.

    So a group that is complete stays the same while values are added, and the plot moves without flicker.
    """
    head = -first % each
    starts = [0, *range(head, len(values), each)] if head else list(range(0, len(values), each))
    return [
        max(values[start:stop])
        for start, stop in zip(starts, [*starts[1:], len(values)], strict=True)
        if start < stop
    ]


def column(value: float, most: float, rows: int, steps: str = STEPS) -> str:
    """Return the characters of a bar from top to bottom. What is not zero is seen."""
    levels = len(steps) - 1
    filled = math.ceil(value / most * rows * levels) if most > 0 else 0
    return "".join(steps[max(0, min(levels, filled - row * levels))] for row in reversed(range(rows)))


class Spark(KeptRows, Widget):
    """The last `capacity` values as bars, the newest at the right.

    Where several values share a column it shows the largest. A bar far above the median has the colour of
    spikes; its height says so, too. steps: the characters from empty to full. spikes: whether a large value
    is something to look at.
    """

    COMPONENT_CLASSES = {"spark--low", "spark--high", "spark--stale"}
    DEFAULT_CSS = """
    Spark {
        height: 1; width: 1fr;
        & > .spark--low { color: $panel-spark-low; }
        & > .spark--high { color: $panel-spark-high; }
        & > .spark--stale { color: $chat-muted; }
    }
    """
    SPIKE = 2.0
    """So many times the median is a spike."""

    def __init__(
        self, *, capacity: int = 240, steps: str = STEPS, spikes: bool = True, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._values: deque[float] = deque(maxlen=capacity)
        self._count = 0  # of all values there ever were
        self._steps = steps
        self._spikes = spikes
        self._stale = False
        self._columns: list[tuple[str, str]] = []  # for each: its characters, its component class
        self._drawn: tuple[int, Size] | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """The values that are kept, oldest first."""
        return tuple(self._values)

    def push(self, values: Iterable[float]) -> None:
        """Add new values; those that are not finite or negative are left out."""
        good = [value for value in values if math.isfinite(value) and value >= 0]
        if good:
            self._values.extend(good)
            self._count += len(good)
            self.refresh()

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()
        self._count = 0
        self.refresh()

    def set_stale(self, stale: bool) -> None:
        """Draw in grey: nothing is measured now."""
        if stale != self._stale:
            self._stale = stale
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one row of the bars."""
        width, rows = self.size
        if self._drawn != (self._count, self.size):
            self._drawn = self._count, self.size
            self._columns = self._draw(width, rows)
        segments = [Segment(" " * (width - len(self._columns)), self.part_style())]
        for name, bars in groupby(self._columns, key=lambda bar: bar[1]):
            style = self.part_style("spark--stale" if self._stale else name)
            segments.append(Segment("".join(characters[y] for characters, _ in bars), style))
        return Strip(segments).adjust_cell_length(width, self.part_style())

    def _draw(self, width: int, rows: int) -> list[tuple[str, str]]:
        if not self._values or width < 1 or rows < 1:
            return []
        each = -(-(self._values.maxlen or 1) // width)
        values = list(self._values)
        shown = peaks(values, self._count - len(values), each)[-width:]
        most = max(shown)
        some = sorted(value for value in values if value)
        limit = self.SPIKE * some[len(some) // 2] if self._spikes and some else math.inf
        return [
            (column(value, most, rows, self._steps), "spark--high" if value > limit else "spark--low")
            for value in shown
        ]
