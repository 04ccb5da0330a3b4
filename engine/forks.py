"""Forked processes: an engine that was open has no thread there, and says so instead of waiting for it."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from .types import EngineError

FORKED = EngineError(
    "engine_failed",
    "this process was forked from one whose engine was open, and threads do not survive a fork; start it by "
    "multiprocessing's method spawn, or fork before an engine is opened",
)


class Threaded(Protocol):
    """What has a thread of its own."""

    def abandon(self) -> None:
        """In a forked process: there is no thread any more."""


running: weakref.WeakSet[Threaded] = weakref.WeakSet()
"""Whatever would have to be abandoned if the process was forked now."""

_forked: list[bool] = []


def check_not_forked() -> None:
    """Raises EngineError in a process that was forked while an engine was open: nothing could run here."""
    if _forked:
        raise EngineError(FORKED.code, FORKED.message)


def _after_fork() -> None:
    abandoned = list(running)
    running.clear()
    for each in abandoned:
        each.abandon()
    if abandoned:
        _forked.append(True)


os.register_at_fork(after_in_child=_after_fork)
