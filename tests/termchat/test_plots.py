"""The small plots of the engine panel."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

from termchat.themes import variable_defaults
from termchat.tui.widgets.kv_map import ASCII_SIGNS, KvMap, Owner, allot
from termchat.tui.widgets.spark import ASCII_STEPS, STEPS, Spark, column, peaks

W = TypeVar("W", bound=Widget)


class PlotApp(App[None]):
    def __init__(self, plot: Widget) -> None:
        super().__init__()
        self._plot = plot

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield self._plot


@asynccontextmanager
async def drawn(plot: W, width: int, height: int) -> AsyncIterator[tuple[Pilot[None], W]]:
    async with PlotApp(plot).run_test(size=(width, height), tooltips=True) as pilot:
        plot.styles.height = height
        await pilot.pause()
        yield pilot, plot


def rows(plot: Widget) -> list[str]:
    return [plot.render_line(y).text for y in range(plot.size.height)]


@pytest.mark.parametrize("seed", range(20))
def test_no_spike_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.random() for _ in range(rng.randint(1, 300))]
    spike = rng.randrange(len(values))
    values[spike] = 100.0
    first, each = rng.randint(0, 1000), rng.randint(1, 20)
    groups = peaks(values, first, each)
    assert max(groups) == 100.0, f"seed {seed}"
    assert groups.count(100.0) == 1


def test_complete_groups_stay_as_they_are() -> None:
    values = [float(value % 17) for value in range(100)]
    before: list[float] = []
    for count in range(1, 101):
        groups = peaks(values[:count], 0, 7)
        assert groups[: len(before) - 1] == before[:-1]
        before = groups
    # Also when old values have been dropped: all but the first group are the same.
    assert peaks(values[10:], 10, 7)[1:] == peaks(values, 0, 7)[2:]


@pytest.mark.parametrize("steps", [STEPS, ASCII_STEPS])
def test_bars(steps: str) -> None:
    assert column(0.0, 1.0, 1, steps) == steps[0]
    assert column(1.0, 1.0, 1, steps) == steps[-1]
    assert column(0.001, 1.0, 1, steps) == steps[1], "what is not zero is seen"
    assert column(0.5, 1.0, 2, steps) == steps[0] + steps[-1]
    assert column(0.75, 1.0, 2, steps) == steps[4] + steps[-1]
    assert column(0.0, 0.0, 1, steps) == steps[0]


async def test_a_spike_has_its_own_height_and_colour() -> None:
    async with drawn(Spark(capacity=400), 40, 2) as (pilot, spark):
        spark.push([10.0] * 200)
        spark.push([80.0])
        spark.push([10.0] * 100)
        await pilot.pause()
        top, bottom = rows(spark)
        assert top.count("█") == 1
        assert top.strip("█ ") == ""
        assert bottom.strip()[0] == "▂"
        at = top.index("█")
        styles = [segment.style for segment in spark.render_line(0)]
        names = [
            spark.get_component_rich_style(f"spark--{name}", partial=True).color for name in ("low", "high")
        ]
        assert names[0] != names[1]
        coloured = [style.color for style in styles if style is not None]
        assert coloured.count(names[1]) == 1
        assert at >= 40 - 31 - 1


async def test_the_newest_is_at_the_right() -> None:
    async with drawn(Spark(capacity=10), 20, 1) as (pilot, spark):
        spark.push([1.0, 8.0])
        await pilot.pause()
        assert rows(spark) == [" " * 18 + "▁█"]
        spark.push([float("nan"), float("inf"), -1.0])
        assert spark.values == (1.0, 8.0)
        spark.set_stale(True)
        spark.clear()
        await pilot.pause()
        assert rows(spark) == [" " * 20]


async def test_it_keeps_the_last_values() -> None:
    async with drawn(Spark(capacity=30), 10, 1) as (pilot, spark):
        for value in range(100):
            spark.push([float(value)])
        await pilot.pause()
        assert spark.values == tuple(float(value) for value in range(70, 100))
        assert len(rows(spark)[0].strip()) == 10


@pytest.mark.parametrize("seed", range(50))
def test_allotment(seed: int) -> None:
    rng = random.Random(seed)
    parts = [rng.choice([0, 1, rng.randint(0, 50), rng.randint(0, 2000)]) for _ in range(rng.randint(1, 12))]
    total = sum(parts) + rng.choice([0, 1, 500])
    cells = rng.randint(1, 120)
    shares = allot(parts, total, cells)
    assert sum(shares) <= cells, f"seed {seed}"
    assert all(share == 0 for share, part in zip(shares, parts, strict=True) if part == 0)
    used = [part for part in parts if part]
    if len(used) <= cells:
        assert all(share >= 1 for share, part in zip(shares, parts, strict=True) if part), f"seed {seed}"
    if total and sum(parts) == total and used:
        assert sum(shares) == cells, f"seed {seed}: a full cache has no free cell"


def shares(*blocks: int) -> list[Owner]:
    return [Owner(f"chat{i}", f"Chat {i}", count) for i, count in enumerate(blocks)]


async def test_the_map_shows_kinds_by_their_signs() -> None:
    async with drawn(KvMap(), 10, 4) as (pilot, block_map):
        block_map.show(80, shares(20, 10), shared=8, cached=12)
        await pilot.pause()
        assert "".join(rows(block_map)) == "■" * 15 + "▨▨▨▨" + "▪▪▪▪▪▪" + "·" * 15
        block_map.show(80, [], 0, 80)
        await pilot.pause()
        assert "".join(rows(block_map)) == "▪" * 40
        block_map.show(0, [])
        await pilot.pause()
        assert "".join(rows(block_map)).strip() == ""


async def test_the_map_in_ascii() -> None:
    async with drawn(KvMap(signs=ASCII_SIGNS), 10, 1) as (pilot, block_map):
        block_map.show(100, shares(30), 20, 20)
        await pilot.pause()
        assert rows(block_map) == ["###%%++..."]


async def test_a_conversation_keeps_its_colour() -> None:
    async with drawn(KvMap(), 30, 1) as (pilot, block_map):
        block_map.show(30, shares(10, 10, 10))
        await pilot.pause()
        colours = [segment.style for segment in block_map.render_line(0)]
        block_map.show(30, shares(10, 10, 10)[1:])
        await pilot.pause()
        assert [segment.style for segment in block_map.render_line(0)][:2] == colours[1:3]
        block_map.show(30, [*shares(10, 10, 10)[1:], Owner("new", "New", 10)])
        await pilot.pause()
        assert block_map.render_line(0)._segments[-1].style == colours[0], "the colour that was free"
        assert len({str(style) for style in colours}) == 3


async def test_B065_a_title_in_the_map_is_literal() -> None:
    async with drawn(KvMap(), 10, 1) as (pilot, block_map):
        block_map.show(10, [Owner("a", "[red]x[/] [/INST]\x1b[31m", 10)])
        await pilot.pause()
        assert rows(block_map) == ["■■■■■■■■■■"]
        await pilot.hover(KvMap, offset=(3, 0))
        await pilot.pause()
        assert str(block_map.tooltip) == "[red]x[/] [/INST]␛[31m: 10 blocks"


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (80, 10)])
async def test_any_size(size: tuple[int, int]) -> None:
    async with drawn(KvMap(), *size) as (pilot, block_map):
        block_map.show(7, shares(1, 1, 1, 1), 1, 1)
        await pilot.pause()
        assert all(len(row) == size[0] for row in rows(block_map))
    async with drawn(Spark(), *size) as (pilot, spark):
        spark.push([1.0, 2.0])
        await pilot.pause()
        assert all(len(row) == size[0] for row in rows(spark))
