"""What the engines do, read five times a second: for the panel, the plots, and the list's speeds."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ...peaks import Peaks
from ..conversations.collection import Conversations
from ..conversations.conversation import Conversation
from ..conversations.live_reply import LiveReply
from ..conversations.streaming import Streaming
from .model_slot import ModelSlot
from .pool import EnginePool
from .stats import EngineStats, Timeline, derive

if TYPE_CHECKING:
    from engine import Engine

log = logging.getLogger(__name__)

MEASURE_SECONDS = 60.0
"""Between two measurements of the peak."""


class Monitor:
    """stats: the last reading of the engine of the conversation on screen, None while it has none.

    speeds: tokens a second of the conversations that stream.
    """

    def __init__(
        self,
        engines: EnginePool,
        conversations: Conversations,
        streaming: Streaming,
        peaks: Peaks | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """peaks: of earlier runs; None: none is measured. tell: shows a sentence to the user."""
        self.stats: EngineStats | None = None
        self.speeds: dict[Conversation, float] = {}
        self._engines = engines
        self._conversations = conversations
        self._streaming = streaming
        self._timelines: dict[ModelSlot, Timeline] = {}
        self._peaks = peaks
        self._tell = tell
        self._met: dict[ModelSlot, int] = {}  # ids of the engines; holding on to them would keep their memory
        self._measured: WeakKeyDictionary[Engine, tuple[int, float]] = WeakKeyDictionary()
        self._task: asyncio.Task[None] | None = None

    @property
    def timeline(self) -> Timeline:
        """The last two minutes of the engine of the conversation on screen, for the plots."""
        return self._timelines.setdefault(self._slot, Timeline())

    @property
    def _slot(self) -> ModelSlot:
        shown = self._conversations.shown
        return self._engines.of(shown.model if shown is not None else "")

    def read(self) -> None:
        """Take a reading; what it says of live replies goes to them."""
        self.stats, self.speeds = None, {}
        prefilling: set[LiveReply] = set()
        idle = True
        others: list[float] = []
        for slot in self._engines.loaded:
            stats = self._read_one(slot, prefilling)
            idle = idle and (stats is None or stats.idle)
            if slot is self._slot:
                self.stats = stats
            elif stats is not None and not stats.idle:
                others.append(stats.snapshot.tokens_per_second or 0.0)
        if self.stats is not None and others:
            self.stats = replace(self.stats, elsewhere=sum(others))
        self._streaming.observe(prefilling)
        if idle and self.stats is not None and self.stats.snapshot.tokens_total > 0:
            self.measure_peak()

    def _read_one(self, slot: ModelSlot, prefilling: set[LiveReply]) -> EngineStats | None:
        snapshot = slot.snapshot()
        if snapshot is None:
            return None
        if slot.engine is not None and self._met.get(slot) != id(slot.engine):
            self._met[slot] = id(slot.engine)
            self.meet(slot.engine)
        rows = {row.id: row for row in snapshot.conversations}
        its: list[Conversation] = []
        for conversation in self._conversations.all:
            live = [reply for reply in conversation.live.values() if reply.slot is slot]
            if live:
                its.append(conversation)
            for reply in live:
                row = rows.get(reply.stream.id)
                if row is not None:
                    reply.context_tokens = row.tokens
                if row is not None and row.state == "prefill":
                    prefilling.add(reply)
                if row is not None and row.tokens_per_second:
                    self.speeds[conversation] = self.speeds.get(conversation, 0.0) + row.tokens_per_second
        stats = derive(snapshot, its, self._conversations.shown if slot is self._slot else None)
        self._timelines.setdefault(slot, Timeline()).add(stats, time.perf_counter())
        return stats

    def meet(self, engine: Engine) -> None:
        """An engine is new: what it has to say, and the peak of earlier runs for it."""
        for note in engine.info.notes:
            self._tell(note)
        if self._peaks is not None:
            self._peaks.tell(engine)

    def measure_peak(self) -> None:
        """Measure the memory's peak when nothing runs anywhere: other programs may have spoiled it before.

        Now and then, after something was answered, or until it was done on a quiet machine: a prompt that is
        sent meanwhile waits some milliseconds.
        """
        engine, stats = self._slot.engine, self.stats
        if engine is None or stats is None or self._peaks is None:
            return
        tokens, time_before = self._measured.get(engine, (0, -math.inf))
        now = time.perf_counter()
        news = stats.snapshot.tokens_total != tokens or not stats.snapshot.bandwidth_peak_quiet
        if not news or now - time_before < MEASURE_SECONDS:
            return
        self._measured[engine] = stats.snapshot.tokens_total, now
        peaks = self._peaks

        async def measure() -> None:
            try:
                await peaks.measure(engine)
            except Exception:  # the engine was closed meanwhile: there is nothing to show
                log.info("the peak bandwidth was not measured", exc_info=True)

        self._task = asyncio.create_task(measure())
