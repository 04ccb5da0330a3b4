"""The engine panel: what the engine does now, in one column; `EngineLine` is all of it in one row."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from ...units import percent, size
from ..engines.model_slot import ModelSlot
from ..engines.stats import EngineStats
from ..glyphs import ASCII, UNICODE, Glyphs
from .figures import (
    MUTED,
    bandwidth_lines,
    bar,
    cache_lines,
    draft_lines,
    engine_lines,
    heading,
    latency_lines,
    one_line,
    pair,
    speed_lines,
)
from .kept_rows import Kept
from .kv_map import ASCII_SIGNS, KvMap, Owner, Signs
from .lines import Lines
from .spark import ASCII_STEPS, STEPS, Spark

STATES = {
    "starting": "starting",
    "absent": "no model yet",
    "downloading": "downloading the model",
    "unloaded": "not loaded",
    "waiting": "waiting for memory",
    "loading": "loading the model",
    "ready": "ready",
    "failed": "the model cannot be used",
    "closed": "closed",
}


class EnginePanel(Kept, VerticalScroll, can_focus=False):
    """Sections of figures; grey when nothing runs."""

    DEFAULT_CSS = """
    EnginePanel {
        width: 36; background: $surface; padding: 1 1 1 2;
        scrollbar-size-vertical: 1; scrollbar-gutter: stable;
    }
    EnginePanel Spark { margin-bottom: 1; }
    EnginePanel KvMap { height: 3; }
    """

    def __init__(self, glyphs: Glyphs = UNICODE, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._plotted = 0  # times between tokens, of all that the engine has counted
        self._above = Lines(grow=True, id="above")
        self._spark = Spark(steps=ASCII_STEPS if glyphs is ASCII else STEPS)
        self._between = Lines(grow=True, id="between")
        self._kv_map = KvMap(signs=ASCII_SIGNS if glyphs is ASCII else Signs())
        self._below = Lines(grow=True, id="below")

    def compose(self) -> ComposeResult:
        """Texts with the two plots between them."""
        yield from (self._above, self._spark, self._between, self._kv_map, self._below)

    def show(self, slot: ModelSlot, stats: EngineStats | None) -> None:
        """Draw the statistics; without an engine, its state."""
        width = max(8, self.scrollable_content_region.width)
        self._spark.display = self._kv_map.display = stats is not None
        if stats is None:
            self._above.show_lines(_absent(slot, width, self._glyphs))
            self._between.show_lines([])
            self._below.show_lines([])
            return
        snapshot, gap, glyphs = stats.snapshot, Content(""), self._glyphs
        self._above.show_lines(
            [
                *engine_lines(stats, width),
                gap,
                *speed_lines(stats, width, glyphs),
                gap,
                *latency_lines(stats, width),
            ]
        )
        self._plot(stats)
        used = f"{snapshot.blocks_used} of {snapshot.blocks_total} blocks"
        self._between.show_lines(
            [*bandwidth_lines(stats, width, glyphs), gap, heading("KV cache", used, width)]
        )
        self._map(stats)
        drafts = draft_lines(stats, width)
        self._below.show_lines([*cache_lines(stats, width), *([gap, *drafts] if drafts else [])])

    def _plot(self, stats: EngineStats) -> None:
        """Add the times between tokens since the last snapshot."""
        snapshot, spark = stats.snapshot, self._spark
        if snapshot.itl_count < self._plotted:  # another engine
            spark.clear()
            self._plotted = 0
        new = min(snapshot.itl_count - self._plotted, len(snapshot.itl_recent_ms))
        self._plotted = snapshot.itl_count
        if new:
            spark.push(snapshot.itl_recent_ms[-new:])
        spark.set_stale(stats.idle)

    def _map(self, stats: EngineStats) -> None:
        snapshot = stats.snapshot
        owners = [
            Owner(str(id(share.conversation)), share.conversation.title, share.blocks)
            for share in stats.shares
        ]
        self._kv_map.show(snapshot.blocks_total, owners, stats.shared, snapshot.blocks_cached)


class EngineLine(Lines):
    """The panel in one line, for narrow terminals."""

    DEFAULT_CSS = "EngineLine { height: 1; padding: 0 2; color: $chat-muted; }"

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs

    def show(self, slot: ModelSlot, stats: EngineStats | None) -> None:
        """Draw the statistics; without an engine, its state."""
        if stats is None:
            self.show_lines([Content.styled(STATES[slot.state], MUTED)])
        else:
            self.show_lines([one_line(stats, self.size.width, self._glyphs)])


def _absent(slot: ModelSlot, width: int, glyphs: Glyphs) -> list[Content]:
    lines = [heading("engine", "", width), Content.styled(STATES[slot.state], MUTED)]
    progress = slot.progress
    if slot.state == "downloading" and progress is not None and progress.total:
        share = progress.done / progress.total
        lines.append(bar(share, width, glyphs))
        lines.append(pair(f"{size(progress.done)} of {size(progress.total)}", percent(share), width, MUTED))
    if slot.loaded_share is not None:
        lines.append(bar(slot.loaded_share, width, glyphs))
    lines += [*Content.styled(slot.preparing, MUTED).wrap(width)] if slot.preparing else []
    if slot.state == "failed":
        lines += [Content(""), *Content.styled(slot.error, "$error").wrap(width)]
    return lines
