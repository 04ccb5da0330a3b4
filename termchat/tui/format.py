"""Numbers for people: short, aligned, with a word for what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from ..units import format_bytes

NOT_YET = "–"


def count(value: float | None) -> str:
    """A number of things: `812`, `6.1k`, `1.2M`."""
    if value is None:
        return NOT_YET
    if value < 1000:
        return f"{value:.0f}"
    if value < 999_950:
        return f"{value / 1000:.1f}k"
    return f"{value / 1e6:.1f}M"


def milliseconds(value: float | None) -> str:
    """A time: `4.2 ms`, `84 ms`, `1.25 s`."""
    return NOT_YET if value is None else milliseconds_each((value,), "")


def milliseconds_each(values: Sequence[float], between: str) -> str:
    """Several times with one unit: `7.1 + 84 ms`."""
    if max(values) >= 1000:
        return between.join(f"{value / 1000:.2f}" for value in values) + " s"
    return between.join(f"{value:.0f}" if value >= 20 else f"{value:.1f}" for value in values) + " ms"


def rate(value: float | None) -> str:
    """Tokens a second, or the like: `71`, `8.4`."""
    if value is None:
        return NOT_YET
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}"


def percent(share: float | None) -> str:
    """A share of one: `76 %`. Only all of it is 100 %."""
    return NOT_YET if share is None else f"{floor(100 * share + 1e-9)} %"


def size(value: float | None) -> str:
    """Bytes in decimal units: `98.4 MB`."""
    return NOT_YET if value is None else format_bytes(value)
