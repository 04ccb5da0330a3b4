"""The engine panel: what the engine does now, in one column; `EngineLine` is all of it in one row."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ..bridge import EngineBridge
from ..glyphs import UNICODE, Glyphs
from ..stats import EngineStats
from .figures import (
    MUTED,
    bandwidth_lines,
    block_map,
    cache_lines,
    draft_lines,
    engine_lines,
    heading,
    latency_lines,
    one_line,
    spark,
    speed_lines,
)

STATES = {
    "starting": "starting",
    "absent": "no model yet",
    "downloading": "downloading the model",
    "loading": "loading the model",
    "ready": "ready",
    "failed": "the model cannot be used",
    "closed": "closed",
}

MAP_ROWS = 3


class EnginePanel(VerticalScroll, can_focus=False):
    """Sections of figures; grey when nothing runs."""

    DEFAULT_CSS = """
    EnginePanel { width: 36; background: $surface; padding: 1 2; scrollbar-size-vertical: 1; }
    EnginePanel Static { height: auto; }
    """

    def __init__(self, glyphs: Glyphs = UNICODE, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """One text: a single widget to lay out and draw."""
        yield Static("", markup=False)

    def show(self, bridge: EngineBridge, stats: EngineStats | None) -> None:
        """Draw the statistics; without an engine, its state."""
        width = max(8, self.scrollable_content_region.width)
        lines = self._lines(stats, width) if stats is not None else _absent(bridge, width)
        self.query_one(Static).update(Content("\n").join(lines))

    def _lines(self, stats: EngineStats, width: int) -> list[Content]:
        snapshot, gap = stats.snapshot, Content("")
        lines = [*engine_lines(stats, width), gap, *speed_lines(stats, width, self._glyphs), gap]
        lines += latency_lines(stats, width)
        if snapshot.itl_recent_ms:
            lines.append(spark(snapshot.itl_recent_ms, width, stale=stats.idle))
        lines += [gap, *bandwidth_lines(stats, width, self._glyphs), gap]
        lines.append(heading("KV cache", f"{snapshot.blocks_used} of {snapshot.blocks_total} blocks", width))
        lines += block_map(stats, width, MAP_ROWS)
        lines += cache_lines(stats, width)
        if drafts := draft_lines(stats, width):
            lines += [gap, *drafts]
        return lines


class EngineLine(Static):
    """The panel in one line, for narrow terminals."""

    DEFAULT_CSS = "EngineLine { height: 1; padding: 0 2; color: $chat-muted; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)

    def show(self, bridge: EngineBridge, stats: EngineStats | None) -> None:
        """Draw the statistics; without an engine, its state."""
        self.update(one_line(stats) if stats is not None else Content.styled(STATES[bridge.state], MUTED))


def _absent(bridge: EngineBridge, width: int) -> list[Content]:
    lines = [heading("engine", "", width), Content.styled(STATES[bridge.state], MUTED)]
    if bridge.state == "failed":
        lines += [Content(""), Content.styled(bridge.error, "$error")]
    return lines
