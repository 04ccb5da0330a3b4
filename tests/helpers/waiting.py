"""Waiting until something is so; a test fails only after a time that nothing but a hang needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

HANG_SECONDS = 60.0


def _pauses(seconds: float, longest: float) -> Iterator[float]:
    """Lengths of the waits between two looks: short ones first, as most things happen at once."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while time.monotonic() < deadline:
        yield pause
        pause = min(pause * 1.5, longest)


async def until(
    condition: Callable[[], object], seconds: float = HANG_SECONDS, *, longest: float = 0.02
) -> None:
    """Let others work until a condition holds. longest: seconds between two looks."""
    for pause in _pauses(seconds, longest):
        if condition():
            return
        await asyncio.sleep(pause)
    assert condition(), "it did not happen"


def wait_for(condition: Callable[[], object], seconds: float = HANG_SECONDS, *, about: str = "") -> None:
    """Stand still until a condition holds that a thread or a process brings about."""
    for pause in _pauses(seconds, 0.02):
        if condition():
            return
        time.sleep(pause)
    assert condition(), f"it did not happen {about}"
