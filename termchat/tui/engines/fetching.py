"""A model on its way to this machine: looked up, fetched, stopped. What has come is kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...errors import UserError
from ..background import in_background

if TYPE_CHECKING:
    from ...download import Progress
    from ...model_entry import ModelEntry
    from ...registry import Registry

log = logging.getLogger(__name__)

T = TypeVar("T")


class _StoppedError(Exception):
    """Raised inside a download to end it."""


class Fetching:
    """One attempt. progress: its latest event. failure: why it came to nothing, if nobody stopped it."""

    def __init__(self, registry: Registry, entry: ModelEntry) -> None:
        self.progress: Progress | None = None
        self.failure: UserError | None = None
        self._registry = registry
        self._entry = entry
        self._stop = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether nobody wants it any more."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End it. Its thread ends by itself, a moment later."""
        self._stop.set()

    async def look_up(self) -> ModelEntry | None:
        """Ask the Hub what the model is: its files, their size, its licence. None: stopped, or a failure."""
        from ...download import Meter, look_up

        meter = Meter(self._note)
        return await self._done(lambda: look_up(self._registry, self._entry.name, meter))

    async def fetch(self) -> Path | None:
        """Bring its files here; where they are. None: stopped before all had come, or a failure."""
        from ...download import ensure

        wanted = self._entry if self._entry.files else self._entry.name
        return await self._done(lambda: ensure(self._registry, wanted, self._note))

    def _note(self, progress: Progress) -> None:
        if self.stopped:
            raise _StoppedError
        self.progress = progress

    async def _done(self, job: Callable[[], T]) -> T | None:
        try:
            return await in_background(job)
        except _StoppedError:
            return None
        except UserError as error:
            log.warning("%s", error)
            self.failure = None if self.stopped else error
            return None
