"""The engine in detail: the last two minutes as plots, the figures beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ...widgets.spark import Spark
from ..format import milliseconds, rate
from ..glyphs import Glyphs
from ..stats import HISTORY, EngineStats, StatsHistory
from ..widgets.figures import (
    bandwidth_lines,
    cache_lines,
    draft_lines,
    engine_lines,
    latency_lines,
    pair,
    speed_lines,
)


class Plot(Vertical):
    """A title with the newest and the largest value, and a spark line below."""

    DEFAULT_CSS = """
    Plot { height: 1fr; min-height: 5; margin-bottom: 1; }
    Plot Static { height: 1; }
    Plot Spark { height: 1fr; }
    """

    def __init__(self, title: str, unit: Callable[[float | None], str]) -> None:
        super().__init__()
        self._title = title
        self._unit = unit

    def compose(self) -> ComposeResult:
        """Title and line."""
        yield Static("", markup=False)
        yield Spark(capacity=HISTORY)

    def update(self, values: Iterable[float]) -> None:
        """Draw these values, oldest first."""
        points = list(values)
        spark = self.query_one(Spark)
        spark.clear()
        spark.push(points)
        now, most = (points[-1], max(points)) if points else (None, None)
        self.query_one(Static).update(
            Content.assemble(
                (f"{self._title}  ", "bold $primary"),
                (self._unit(now), "bold"),
                (f"   max {self._unit(most)}", "$chat-muted"),
            )
        )


class StatsScreen(ModalScreen[None]):
    """Plots on the left, all figures on the right. `update` is called at the panel's rhythm."""

    BINDINGS = [
        Binding("escape,q", "dismiss", "close", show=False),
        Binding("f3", "dismiss", "close", show=False, id="stats.detail"),  # the user's key for it, too
    ]
    DEFAULT_CSS = """
    StatsScreen { background: $background; }
    StatsScreen Horizontal { height: 1fr; padding: 1 2; }
    StatsScreen #plots { width: 2fr; margin-right: 3; }
    StatsScreen #figures { width: 1fr; min-width: 34; }
    StatsScreen #figures Static { height: auto; }
    StatsScreen #close { dock: bottom; height: 1; padding: 0 2; color: $chat-muted; }
    """

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """Plots and figures."""
        with Horizontal():
            with Vertical(id="plots"):
                yield Plot("tokens a second", rate)
                yield Plot("time between tokens", milliseconds)
                yield Plot("memory traffic, GB/s", lambda value: "–" if value is None else f"{value:.1f}")
                yield Plot(
                    "conversations in the batch", lambda value: "–" if value is None else f"{value:.0f}"
                )
                yield Plot("KV blocks in use", lambda value: "–" if value is None else f"{value:.0f}")
            with VerticalScroll(id="figures"):
                yield Static("", markup=False)
        yield Static("esc close   /stats copies all figures as JSON", id="close", markup=False)

    def update(self, stats: EngineStats | None, history: StatsHistory) -> None:
        """Show these."""
        if not self.is_mounted:
            return  # the plots are composed one by one; the next reading comes soon
        if stats is None:
            self.query_one("#figures Static", Static).update(Content("the engine is not loaded yet"))
            return
        series: Sequence[Iterable[float]] = (
            history.tokens_per_second,
            stats.snapshot.itl_recent_ms,
            history.bandwidth,
            history.rows,
            history.blocks,
        )
        for plot, values in zip(self.query(Plot), series, strict=True):
            plot.update(values)
        width = max(20, self.query_one("#figures").size.width - 2)
        snapshot = stats.snapshot
        gap = [Content("")]
        lines = [
            *engine_lines(stats, width),
            pair("model", snapshot.model, width, "$chat-muted"),
            pair("steps", str(snapshot.steps), width, "$chat-muted"),
            pair("tokens", str(snapshot.tokens_total), width, "$chat-muted"),
            *gap,
            *speed_lines(stats, width, self._glyphs),
            *gap,
            *latency_lines(stats, width),
            *gap,
            *bandwidth_lines(stats, width, self._glyphs),
            *gap,
            pair(
                "KV cache",
                f"{snapshot.blocks_total} x {snapshot.block_size} tokens",
                width,
                "$chat-muted",
                "bold $primary",
            ),
            *cache_lines(stats, width),
            *gap,
            *draft_lines(stats, width),
        ]
        self.query_one("#figures Static", Static).update(Content("\n").join(lines))
