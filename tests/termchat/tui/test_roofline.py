"""F3 shows the model's roofline, where the model has files and the machine's bandwidth is known."""

from __future__ import annotations

from typing import Any

import pytest

from engine.data_sheets import machine_of
from engine.workload import workload_sized
from termchat.tui.engines.loader import Roof
from termchat.tui.screens.stats import StatsScreen


@pytest.mark.parametrize(
    ("size", "config"), [((60, 20), ""), ((100, 30), ""), ((160, 45), "[ui]\nascii = true\n")]
)
async def test_the_roofline_stands_below_the_figures(
    open_app: Any, script: Any, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], config: str
) -> None:
    load = workload_sized(7e9, "none", "float16")
    monkeypatch.setattr(
        "termchat.tui.engines.loader.Loader.roof", lambda *_, measure: Roof(load, machine_of("H100"))
    )
    ascii = "ascii" in config
    async with open_app(script("Hi."), size=size, config=config.removeprefix("[ui]\n")) as d:
        await d.press("f3")
        await d.until(lambda: isinstance(d.app.screen, StatsScreen) and d.app.screen.roof is not None)
        screen = d.app.screen
        await d.until(lambda: any("roofline" in line.plain for line in screen._lines))
        rows = [line.plain for line in screen._lines]
        assert any(row.startswith(" 989 T/s ") for row in rows)
        assert any(row.startswith("A decode: 1 a byte, at most 3.") for row in rows)
        assert any(row.startswith("B prefill: ") and row.endswith("at most 989 T/s") for row in rows)
        assert any(("/" if ascii else "╱") in row for row in rows[-14:])
        await d.press("escape")


async def test_a_model_without_files_has_none(open_app: Any, script: Any) -> None:
    async with open_app(script("Hi.")) as d:
        await d.press("f3")
        await d.settle()
        assert d.app.screen.roof is None
        assert not any("roofline" in line.plain for line in d.app.screen._lines)
        await d.press("escape")
