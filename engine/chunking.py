"""How many prompt tokens a step may take beside decoding conversations, from measured step times."""

from __future__ import annotations

TARGET_SECONDS = 0.1
"""Inter-token latency that a long paste of one conversation may cause in the others: still faster than
reading.
"""

SMALLEST = 16
"""Tokens a chunk has at least, so that a slow machine's prefill gets on."""

FIRST_GUESS = 64
"""Tokens of a chunk while nothing is measured yet."""

WEIGHT = 0.2
"""Share of the newest step in the moving averages."""


class ChunkBudget:
    """The prefill chunk: fixed, or what keeps a mixed step near TARGET_SECONDS.

    A step costs about base + rows * per_row; decode-only steps tell the base, mixed ones the cost of a
    prefill row.
    """

    def __init__(self, fixed: int | None, largest: int) -> None:
        self._fixed = fixed
        self._largest = largest
        self._base: float | None = None
        self._per_row: float | None = None

    def limit(self) -> int:
        """Prompt tokens for the next step, if others decode in it."""
        if self._fixed is not None:
            return self._fixed
        if self._base is None or self._per_row is None:
            return min(FIRST_GUESS, self._largest)
        # A machine whose decode step alone takes longer than the target still prefills at half its speed.
        room = max(TARGET_SECONDS - self._base, self._base / 2)
        return max(SMALLEST, min(self._largest, int(room / self._per_row)))

    def observe(self, seconds: float, prefill_rows: int) -> None:
        """Take in the duration of a committed step and how many prompt tokens were in it."""
        if 0 < prefill_rows < SMALLEST:
            return  # what a reply goes on with unasked, or the end of a prompt: too few to tell their cost
        if prefill_rows == 0:
            self._base = _moved(self._base, seconds)
        elif self._base is not None:
            self._per_row = _moved(self._per_row, max(seconds - self._base, seconds / 10) / prefill_rows)
        elif prefill_rows >= FIRST_GUESS:  # with fewer rows, most of the step is the base, still unknown
            self._per_row = _moved(self._per_row, seconds / prefill_rows)


def _moved(average: float | None, value: float) -> float:
    return value if average is None else average + WEIGHT * (value - average)
