"""Numbers for people: short, aligned, with a word for what is not known. Every figure on a screen is one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import floor

NOT_YET = "–"


def size(value: float | None) -> str:
    """Bytes in decimal units: `512 B`, `98.4 MB`."""
    if value is None:
        return NOT_YET
    if value < 1000:
        return f"{value:.0f} B"
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def duration(seconds: float) -> str:
    """A time in two units at most: `45 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def date(seconds: float) -> str:
    """A moment, in seconds since 1970, by the local clock: `2025-03-01 14:05`; "" if there is none."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""


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


def number(value: float | None, places: int = 1) -> str:
    """A figure in a column, or with a unit of its own: `84.3`."""
    return NOT_YET if value is None else f"{value:.{places}f}"


def percent_each(shares: Sequence[float]) -> str:
    """Several shares with one unit: `92 81 70 %`."""
    return " ".join(percent(share).removesuffix(" %") for share in shares) + " %" if shares else NOT_YET


def percent(share: float | None) -> str:
    """A share of one: `76 %`. Only all of it is 100 %."""
    return NOT_YET if share is None else f"{floor(100 * share + 1e-9)} %"
