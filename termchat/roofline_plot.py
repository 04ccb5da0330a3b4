"""A roofline as rows of text: how fast a machine computes at most, by how much is computed with each byte.

Left of the ridge the memory is the limit, right of it the arithmetic (Williams et al. 2009). Both axes are
logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .units import count, number

NARROWEST = 30
"""Cells below which there is no plot."""


_AXIS = " operations a byte"


class Mark(NamedTuple):
    """A point of the plot: what it is, and operations a byte."""

    what: str
    intensity: float


class Signs(NamedTuple):
    """What the lines are drawn with."""

    slope: str
    flat: str
    side: str
    corner: str


UNICODE = Signs("╱", "─", "│", "└")
ASCII = Signs("/", "-", "|", "+")


def roofline(
    bandwidth: float,
    rate: float | None,
    marks: Sequence[Mark],
    width: int,
    height: int,
    *,
    ascii: bool = False,
) -> list[str]:
    """The rows, `height` of them and one for each mark; none where there is no room for a plot.

    bandwidth: bytes a second; rate: operations a second, None where it is not known: then there is no ridge.
    Each mark is a letter on the line, and a row below the axis says what it is.
    """
    signs = ASCII if ascii else UNICODE
    margin = 9
    columns, rows = width - margin - 1, height - 2
    if width < NARROWEST or rows < 3 or not marks:
        return []
    ridge = rate / bandwidth if rate else None
    known = [mark.intensity for mark in marks] + ([ridge] if ridge else [])
    low, high = math.log10(min(known) / 2), math.log10(max(known) * 4)

    def attainable(intensity: float) -> float:
        return min(intensity * bandwidth, rate or math.inf)

    bottom, top = math.log10(attainable(10**low)), math.log10(attainable(10**high))

    def column(intensity: float) -> int:
        return round((math.log10(intensity) - low) / (high - low) * (columns - 1))

    def row(value: float) -> int:
        return round((top - math.log10(value)) / (top - bottom) * (rows - 1))

    grid = [[" "] * columns for _ in range(rows)]
    before: int | None = None
    for at in range(columns):
        intensity = 10 ** (low + (high - low) * at / (columns - 1))
        here = row(attainable(intensity))
        sign = signs.flat if ridge and intensity > ridge else signs.slope
        for between in range(here, (here if before is None else max(before - 1, here)) + 1):
            grid[between][at] = sign
        before = here
    letters = [chr(ord("A") + number) for number in range(len(marks))]
    for letter, mark in zip(letters, marks, strict=True):
        wanted, line = column(mark.intensity), grid[row(attainable(mark.intensity))]
        free = (place for place in range(columns) if line[place] not in letters)
        line[min(free, key=lambda place: abs(place - wanted))] = letter  # close ones stand side by side
    labels = {0: attainable(10**high), rows - 1: attainable(10**low)}
    drawn = [
        f"{_operations(labels[y]) if y in labels else '':>{margin - 1}} {signs.side}{''.join(line)}".rstrip()
        for y, line in enumerate(grid)
    ]
    axis = f"{'':>{margin}}{signs.corner}{signs.flat * columns}"
    left, right = _short(10**low), _short(10**high)
    if len(left) + len(right) + len(_AXIS) + 2 <= columns:
        left += _AXIS
    scale = f"{'':>{margin + 1}}{left}{right:>{max(0, columns - len(left))}}"
    below = []
    for letter, mark in zip(letters, marks, strict=True):
        most = _operations(attainable(mark.intensity))
        below.append(f"{letter} {mark.what}: {_short(mark.intensity)} a byte, at most {most}")
    return [*drawn, axis, scale, *below]


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 10 else count(value)


def _operations(value: float) -> str:
    """Operations a second: `3.4 T/s`."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if value < 999.5 or unit == "P":
            break
        value /= 1000
    return f"{number(value, 1 if value < 10 else 0)} {unit}/s"
