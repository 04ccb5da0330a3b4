"""The store behind threads of its own: the interface never waits for a disk or another program's lock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...errors import UserError
from ...store import ConversationTable, Database, Store
from ..background import Worker

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_SECONDS = 20.0
"""Longer than the store waits for another program's lock, so that the last words are saved."""


class StoreThread:
    """Calls on the store, one after another, off the event loop; long reading has a connection of its own.

    Where nothing may or can be saved the conversations live in memory, and go with the program however that
    ends; `notice` says why.
    """

    def __init__(self, database: Path | None, failed: Callable[[Exception], None]) -> None:
        """database: None saves nothing. failed: gets the error of a `post`; from any thread."""
        self.notice: str | None = None
        self._database = database
        self._failed = failed
        self._worker = Worker("store")
        self._searcher: Worker | None = None
        self._store: Store | None = None
        self._reader: ConversationTable | None = None

    async def open(self) -> None:
        """Open the database, as the first call does too."""
        await self._worker.call(self._opened)

    def call(self, function: Callable[[Store], T]) -> asyncio.Future[T]:
        """Carry out a call on the store; its result, StoreError or PathError."""
        return self._worker.call(lambda: function(self._opened()))

    async def read(self, function: Callable[[ConversationTable], T]) -> T:
        """Carry out a call that only reads and may take long: nothing that is saved waits for it."""
        database = await self.call(lambda store: store.database)
        if database.in_memory:  # for one connection only, and little
            return await self.call(function)

        def run() -> T:
            if self._reader is None:
                self._reader = ConversationTable(Database(database.path))
            return function(self._reader)

        if self._searcher is None:
            self._searcher = Worker("search")
        return await self._searcher.call(run)

    def post(self, function: Callable[[Store], object]) -> None:
        """Carry out a call whose result nobody waits for."""

        def run() -> None:
            try:
                function(self._opened())
            except (UserError, OSError) as error:
                log.warning("%s", error)
                self._failed(error)

        self._worker.post(run)

    def close(self) -> None:
        """Carry out what is waiting and close; blocks, but not for ever."""
        if self._searcher is not None:
            self._searcher.post(self._close_reader)
            self._searcher.close(0)
        self._worker.post(self._close)
        if not self._worker.close(CLOSE_SECONDS):
            log.error("the store did not answer for %d s: what came last may not be saved", CLOSE_SECONDS)

    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._open()
        return self._store

    def _open(self) -> Store:
        if self._database is not None:
            try:
                store = Store(self._database)
            except UserError as error:
                self.notice = f"nothing is saved: {error}"
            else:
                if store.notice is None:
                    return store
                self.notice = store.notice
                store.close()
        return Store(None)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.database.close()

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
