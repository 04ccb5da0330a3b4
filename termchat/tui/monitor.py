"""What the engine does, read five times a second: for the panel, the plots, and the list's speeds."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from .bridge import EngineBridge
from .chat import Chat
from .chats import Chats
from .relay import Relay
from .stats import EngineStats, StatsHistory, derive

if TYPE_CHECKING:
    from engine import AsyncEngine

log = logging.getLogger(__name__)


class Monitor:
    """stats: of the last reading, None without an engine. history: for the plots. speeds: tokens a second."""

    def __init__(self, bridge: EngineBridge, chats: Chats, relay: Relay) -> None:
        self.stats: EngineStats | None = None
        self.history = StatsHistory()
        self.speeds: dict[Chat, float] = {}
        self._bridge = bridge
        self._chats = chats
        self._relay = relay
        self._measured: AsyncEngine | None = None
        self._task: asyncio.Task[None] | None = None

    def read(self) -> None:
        """Take a reading; what it says of live replies goes to them."""
        snapshot = self._bridge.snapshot()
        rows = {row.id: row for row in snapshot.conversations} if snapshot is not None else {}
        live = [(chat, reply) for chat in self._chats.all for reply in chat.live.values()]
        self.speeds = {}
        prefilling = set()
        for chat, reply in live:
            row = rows.get(reply.stream.id)
            if row is not None and row.state == "prefill":
                prefilling.add(reply)
            if row is not None and row.tokens_per_second:
                self.speeds[chat] = self.speeds.get(chat, 0.0) + row.tokens_per_second
        self._relay.observe(prefilling)
        self.stats = derive(snapshot, self._chats.all, self._chats.shown) if snapshot is not None else None
        if self.stats is not None:
            self.history.add(self.stats)
            if self.stats.idle and self.stats.snapshot.tokens_total > 0:
                self.measure_peak()

    def measure_peak(self) -> None:
        """Measure the memory's peak once for an engine, after its first reply, when nothing runs."""
        engine = self._bridge.engine
        if engine is None or engine is self._measured:
            return
        self._measured = engine

        async def measure() -> None:
            try:
                await engine.bandwidth_peak()
            except Exception:  # the engine was closed meanwhile: there is nothing to show
                log.info("the peak bandwidth was not measured", exc_info=True)

        self._task = asyncio.create_task(measure())
