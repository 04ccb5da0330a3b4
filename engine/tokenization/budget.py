"""What one rendering of a template may use: steps, memory and time."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextvars import ContextVar
from typing import Any

ITEM = 64
"""Weight of an entry of a list or dictionary, in characters: enough for any plain value but text."""

_POINTER = 8  # bytes
_CALL = 4  # steps
_MAX_BITS = 128  # of an integer
_STEPS = 1 << 21
_CHARACTERS = 1 << 23
_SECONDS = 5.0
_LOOK_EVERY = 256  # steps
_LOOK_BACK = 64  # steps
_MOST_STEPS = 1 << 26
_MOST_CHARACTERS = 1 << 30
_AT_ONCE = 1 << 24
_GROWTH = 1 << 27  # bytes


def resident_bytes() -> int:
    """Memory this process has in use, or where that is not known, the most it has had."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class LimitError(Exception):
    """A template needs more than its budget."""


class Budget:
    """Limits that grow with the conversation and are far above what honest templates need.

    A step is one node of the template's syntax tree, executed, or one entry looked at. The weight of a value
    is about the number of characters it has when written out. No value outweighs `largest`, and the memory of
    all values made is bounded too; so no single operation takes long or needs much memory, and the steps
    bound the rest. The clock is the last resort. All checks raise LimitError.
    """

    def __init__(self, data: Any, turns: int = 0) -> None:
        """data: what the template is given. turns: of the conversation; templates that look back at each of
        them, or write out what they have so far, take the square of it.
        """
        # By id(); holds the value too, so that the id stays its own.
        self._weights: dict[int, tuple[Any, int]] = {}
        self.largest = self._room = self._more = self._steps = 1 << 62
        self._before = 0  # bytes in use when the room was used up
        self._deadline, self._look = math.inf, 0
        size = self.weight(data)
        self.largest = _CHARACTERS + 8 * size
        self._room = 8 * self.largest
        self._more = min(turns * size, _MOST_CHARACTERS)
        self._steps = _STEPS + 16 * size + min(_LOOK_BACK * turns * turns, _MOST_STEPS)
        self._deadline = time.thread_time() + _SECONDS  # of the processor: other work must not count
        self._look = self._steps  # where the clock is looked at next

    def step(self, count: int) -> None:
        """Take steps."""
        self._steps -= count
        if self._steps < self._look:
            self._look = self._steps - _LOOK_EVERY
            if self._steps < 0:
                raise LimitError("it takes too many steps")
            if time.thread_time() > self._deadline:
                raise LimitError(f"it takes more than {_SECONDS:g} seconds")

    def check(self, weight: int) -> None:
        """Refuse a value of this weight before it is made."""
        if weight > self.largest:
            raise LimitError(f"it makes a value of {weight} characters; {self.largest} are allowed")

    def keep(self, value: Any) -> Any:
        """Accept a new value; iterators become lists, so that nothing is computed unseen."""
        self.step(_CALL)
        if isinstance(value, str):
            self._spend(len(value))
        elif isinstance(value, (Iterator, KeysView, ItemsView, ValuesView)):
            return self.collect(value)
        else:
            self.weight(value)
        return value

    def add(self, left: Any, right: Any) -> Any:
        """The sum. A list that grows by one in each turn of a loop is not looked through each time."""
        total = left + right
        if not isinstance(total, (list, tuple)):
            return self.keep(total)
        self.step(_CALL)
        self._record(total, self.weight(left) + self.weight(right))
        return total

    def check_product(self, left: Any, right: Any) -> None:
        """Refuse to repeat a text or a list too often."""
        for value, times in ((left, right), (right, left)):
            if isinstance(times, int) and isinstance(value, (str, list, tuple)):
                self.check(self.weight(value) * times)

    def collect(self, values: Iterable[Any]) -> list[Any]:
        """The values as a list, taken one step each."""
        collected: list[Any] = []
        for value in values:
            self.step(1)
            self.check(ITEM * len(collected))
            collected.append(value)
        self.weight(collected)
        return collected

    def join(self, pieces: Iterable[str], separator: str = "") -> str:
        """The pieces as one text."""
        parts: list[str] = []
        total = 0
        for piece in pieces:
            total += len(piece) + len(separator)
            self.check(total)
            parts.append(piece)
        self._spend(total)
        return separator.join(parts)

    def _spend(self, characters: int) -> None:
        self.check(characters)
        self._take(characters)

    def _take(self, nbytes: int) -> None:
        self._room -= nbytes
        if self._room < 0:
            self._take_more()

    def _take_more(self) -> None:
        """Some room again where most of what was made is gone, as what a growing text was before."""
        self._more -= _AT_ONCE - self._room
        in_use = resident_bytes()
        self._before = self._before or in_use
        if self._more < 0 or in_use - self._before > _GROWTH:
            raise LimitError("it needs too much memory")
        self._room = _AT_ONCE

    def weight(self, value: Any) -> int:
        """About the number of characters of a value when it is written out.

        Nothing changes a list or dictionary, so each is looked through once.
        """
        if isinstance(value, str):
            return len(value)
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise LimitError("it makes a number of too many digits")
        if not isinstance(value, (list, tuple, dict)):
            return 0
        if id(value) in self._weights:
            return self._weights[id(value)][1]
        self.check(ITEM * len(value))
        self.step(len(value))
        entries = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return self._record(value, ITEM * len(value) + sum(map(self.weight, entries)))

    def _record(self, value: Any, weight: int) -> int:
        self.check(weight)
        self._take(_POINTER * len(value))
        self._weights[id(value)] = (value, weight)
        return weight


current: ContextVar[Budget] = ContextVar("budget")
"""The budget of the rendering that runs in this context."""
