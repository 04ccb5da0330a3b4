"""The engine in detail: the last two minutes as plots, the figures beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ...roofline_plot import Mark, roofline
from ...units import NOT_YET, count, milliseconds, number, rate
from ..engines.loader import Roof
from ..engines.stats import SAMPLES, EngineStats, Timeline
from ..glyphs import ASCII, Glyphs
from ..widgets.figures import (
    bandwidth_lines,
    cache_lines,
    draft_lines,
    engine_lines,
    latency_lines,
    pair,
    speed_lines,
)
from ..widgets.lines import same
from ..widgets.spark import ASCII_STEPS, STEPS, Spark

if TYPE_CHECKING:
    from engine import EngineSnapshot

ROOF_ROWS = 10


class Plot(Vertical):
    """A title with the newest and the largest value, and a spark line below."""

    DEFAULT_CSS = """
    Plot { height: 1fr; min-height: 3; }
    Plot Static { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    Plot Spark { height: 1fr; }
    """

    def __init__(
        self, title: str, unit: Callable[[float | None], str], glyphs: Glyphs, *, spikes: bool = False
    ) -> None:
        """spikes: whether a large value is something to look at."""
        super().__init__()
        self._title = title
        self._unit = unit
        self._glyphs = glyphs
        self._spikes = spikes
        self._timeline: Timeline | None = None
        self._drawn = 0  # samples of it that are in the plot
        self._shown = ""

    def compose(self) -> ComposeResult:
        """Title and line."""
        yield Static("", markup=False)
        steps = ASCII_STEPS if self._glyphs is ASCII else STEPS
        yield Spark(capacity=SAMPLES, steps=steps, spikes=self._spikes)

    def update(self, values: Sequence[float], timeline: Timeline) -> None:
        """Draw these values of the timeline, oldest first: those that have come since the last time."""
        spark = self.query_one(Spark)
        new = timeline.count - self._drawn
        if timeline is not self._timeline:
            self._timeline, new = timeline, len(values)
            spark.clear()
        self._drawn = timeline.count
        if new:
            spark.push(list(values)[-new:])
        now, most = (self._unit(values[-1]), self._unit(max(values))) if values else (NOT_YET, NOT_YET)
        if (shown := f"{now} {most}") != self._shown:
            self._shown = shown
            self.query_one(Static).update(
                Content.assemble(
                    (f"{self._title}  ", "bold $primary"), (now, "bold"), (f"  max {most}", "$chat-muted")
                )
            )


class StatsScreen(ModalScreen[None]):
    """Plots on the left, all figures on the right. `update` is called at the panel's rhythm."""

    BINDINGS = [  # first of all, so that what is typed next goes to the screen below
        Binding("escape,q", "dismiss", "close", show=False, priority=True),
        Binding("f3", "dismiss", "close", show=False, priority=True, id="stats.detail"),  # or the user's key
    ]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (78, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (34, "-high")]
    DEFAULT_CSS = """
    StatsScreen { background: $background; }
    StatsScreen #all { layout: horizontal; overflow: hidden; height: 1fr; padding: 1 2; }
    StatsScreen #plots { width: 2fr; margin-right: 3; }
    StatsScreen #figures { width: 1fr; min-width: 34; scrollbar-size-vertical: 1; }
    StatsScreen #figures Static { height: auto; }
    StatsScreen.-high Plot Spark { margin-bottom: 1; }
    StatsScreen.-narrow #all { layout: vertical; overflow-y: auto; scrollbar-size-vertical: 1; }
    StatsScreen.-narrow #plots { width: 1fr; height: 25; margin: 0 1 1 0; }
    StatsScreen.-narrow #figures { width: 1fr; height: auto; margin-right: 1; }
    StatsScreen #close { dock: bottom; height: 1; padding: 0 2; color: $chat-muted; }
    """

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._lines: list[Content] = []
        self.roof: Roof | None = None

    def compose(self) -> ComposeResult:
        """Plots and figures."""
        with VerticalScroll(id="all", can_focus=False):
            with Vertical(id="plots"):
                yield Plot("tokens a second", rate, self._glyphs)
                yield Plot("between tokens", _wait, self._glyphs, spikes=True)
                yield Plot("memory traffic, GB/s", number, self._glyphs)
                yield Plot("conversations in the batch", count, self._glyphs)
                yield Plot("KV blocks in use", count, self._glyphs)
            with VerticalScroll(id="figures"):
                yield Static("", markup=False)
        yield Static("esc close   /stats copies all figures as JSON", id="close", markup=False)

    def update(self, stats: EngineStats | None, timeline: Timeline) -> None:
        """Show these."""
        if not self.is_mounted:
            return  # the plots are composed one by one; the next reading comes soon
        self.query_one("#plots").display = stats is not None  # else they would stand above what is said
        if stats is None:
            self._show([Content("the engine is not loaded yet")])
            return
        series: Sequence[Sequence[float]] = (
            timeline.tokens_per_second,
            timeline.waits,
            timeline.bandwidth,
            timeline.rows,
            timeline.blocks,
        )
        for plot, values in zip(self.query(Plot), series, strict=True):
            plot.update(values, timeline)
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
            *self._roofline(stats.snapshot, width),
        ]
        self._show(lines)

    def _roofline(self, snapshot: EngineSnapshot, width: int) -> list[Content]:
        """The model's decode and prefill below what the machine can do; nothing while that is not known."""
        machine = self.roof.machine if self.roof is not None else None
        peaks = [snapshot.bandwidth_peak_gbs or 0.0, ((machine and machine.bandwidth) or 0.0) / 1e9]
        if self.roof is None or not max(peaks):
            return []
        from engine.planning import PROMPT, rate_of

        load = self.roof.load
        tokens = [row.tokens for row in snapshot.conversations] or [1024]
        rows, context = max(1, len(snapshot.conversations)), sum(tokens) // len(tokens)
        batch = [Mark(f"these {rows}", load.decode(rows, context).intensity)] if rows > 1 else []
        marks = [
            Mark("decode", load.decode(1, context).intensity),
            *batch,
            Mark("prefill", load.prefill(PROMPT).intensity),
        ]
        rate = rate_of(machine, load) if machine is not None else None
        ascii = self._glyphs is ASCII
        drawn = roofline(max(peaks) * 1e9, rate, marks, width, ROOF_ROWS, ascii=ascii)
        title = [Content(""), Content("roofline, operations/s").stylize("bold $primary")]
        return [*title, *map(Content, drawn)] if drawn else []

    def _show(self, lines: list[Content]) -> None:
        """Show these figures; what is as it was is not drawn again."""
        if len(lines) == len(self._lines) and all(map(same, lines, self._lines)):
            return
        self._lines = lines
        self.query_one("#figures Static", Static).update(Content("\n").join(lines))


def _wait(value: float | None) -> str:
    return milliseconds(value or None)
