"""The panel's figures: what they are of, what they add up to, and that they cost nothing at rest."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from engine import ConversationRow, EngineSnapshot
from engine.testing import ScriptedModel, ScriptedRunner
from termchat.peaks import Peaks
from termchat.tui.conversations.streaming import Streaming
from termchat.tui.engines.monitor import Monitor
from termchat.tui.engines.stats import EngineStats, Timeline, derive
from termchat.tui.glyphs import UNICODE
from termchat.tui.screens.stats import StatsScreen
from termchat.tui.widgets.figures import bandwidth_lines, engine_lines, speed_lines

READY = EngineSnapshot(
    "ready", "native", True, "m", block_size=32, blocks_total=100, blocks_free=100, bytes_per_token=10**8
)


def row(id: int, tokens: int = 64, state: Any = "decode", speed: float | None = None) -> ConversationRow:
    return ConversationRow(id, state, tokens, speed, None, -(-tokens // 32), 0)


def chat(used: int | None, *ids: int) -> Any:
    live = {id: SimpleNamespace(stream=SimpleNamespace(id=id)) for id in ids}
    return SimpleNamespace(tokens_used=used, live=live, title="chat", state="decode")


def stats(**values: Any) -> EngineStats:
    return EngineStats(replace(READY, **values), (), 0, None)


def text(lines: Any) -> str:
    return "\n".join(line.plain for line in lines)


def test_a_gpu_is_named_in_any_width() -> None:
    assert " on " not in text(engine_lines(stats(device="cpu (avx512, 2 threads)"), 40))
    named = {"device": "cuda:0 (NVIDIA H200)"}
    wide = text(engine_lines(stats(**named), 40)).splitlines()
    assert wide[1].split(maxsplit=1) == ["on", "cuda:0 (NVIDIA H200)"]
    narrow = text(engine_lines(stats(**named), 16)).splitlines()
    assert max(map(len, narrow)) <= 16
    assert "cuda:0" in narrow[1]


def test_kernels_that_are_replaced_are_named_in_any_width() -> None:
    names = ("attention", "rms_norm")
    assert "torch" not in text(engine_lines(stats(), 40))
    assert "plain torch      attention, rms_norm" in text(engine_lines(stats(replaced=names), 36))
    narrow = text(engine_lines(stats(replaced=names), 22)).splitlines()
    assert max(map(len, narrow)) <= 22
    assert "attent" in narrow[1]


def test_B3_a_share_is_never_above_all_of_it() -> None:
    assert stats(bandwidth_gbs=28.1, bandwidth_peak_gbs=15.2).bandwidth_share == 1
    shown = text(bandwidth_lines(stats(bandwidth_gbs=28.1, bandwidth_peak_gbs=28.1), 40, UNICODE))
    assert "100 %" in shown
    assert "busy" not in shown


def test_B3_a_peak_of_a_busy_machine_says_so() -> None:
    busy = stats(bandwidth_gbs=8.0, bandwidth_peak_gbs=10.0, bandwidth_peak_quiet=False)
    assert "measured on a busy machine" in text(bandwidth_lines(busy, 32, UNICODE))


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"running": 0}, ""),
        ({"bandwidth_gbs": 9.0}, "memory"),
        ({"bandwidth_gbs": 9.0, "crowding": 1.0}, "other programs"),
        ({"bandwidth_gbs": 4.0, "last_step_rows": 8}, "arithmetic"),
        ({"bandwidth_gbs": 4.0, "last_step_rows": 1}, ""),
        ({"bandwidth_gbs": 9.0, "bandwidth_peak_gbs": None, "last_step_rows": 8}, ""),
        ({"bandwidth_gbs": 9.0, "conversations": (row(1, state="prefill"),)}, "reading a prompt"),
    ],
)
def test_what_limits_is_said_in_words(values: dict[str, Any], limit: str) -> None:
    found = stats(**{"running": 1, "bandwidth_peak_gbs": 10.0, **values})
    assert found.limit == limit
    assert ("limited by" in text(bandwidth_lines(found, 32, UNICODE))) is bool(limit)
    assert found.as_dict()["limited_by"] == (limit or None)


def test_B11_conversations_of_all_models_are_in_the_total() -> None:
    own = replace(stats(running=1, tokens_per_second=13.9), elsewhere=19.0)
    assert own.total == pytest.approx(32.9)
    shown = text(speed_lines(own, 32, UNICODE))
    assert "33" in shown
    assert "of other models" in shown
    resting = replace(stats(running=0, tokens_per_second=50.0), elsewhere=19.0)
    assert resting.total == 19.0, "its rate is of before"
    assert stats(tokens_per_second=50.0).total == 50.0


def test_B5_room_for_more_moves_while_a_reply_grows() -> None:
    """The count of tokens that the conversation has ended with is of before."""
    snapshot = replace(READY, running=1, conversations=(row(7, 320),), blocks_free=90)
    assert derive(snapshot, [], chat(58, 7)).fits == 9
    assert derive(replace(snapshot, conversations=(row(7, 3200),)), [], chat(58, 7)).fits == 0
    assert derive(replace(READY, conversations=()), [], chat(58)).fits == 50


def test_B12_a_reply_between_two_readings_is_in_the_plots() -> None:
    timeline, at = Timeline(), replace(READY, time=10.0)
    for now in (10.0, 10.2, 70.0):
        timeline.add(EngineStats(at, (), 0, None), now)
    assert timeline.count == 1, "nothing runs: the plots stand still"
    after = replace(at, time=70.18, tokens_total=22, decode_bytes=22 * 10**8, decode_seconds=0.11)
    for now in (70.2, 70.4, 70.6, 100.0):
        timeline.add(EngineStats(after, (), 0, None), now)
    assert list(timeline.tokens_per_second) == [0, pytest.approx(110), 0]
    assert list(timeline.bandwidth) == [0, pytest.approx(20.0), 0]
    assert list(timeline.rows) == [0, 1, 0]
    assert timeline.count == 3


def test_rates_of_a_long_reply_do_not_jump_with_the_time_of_publishing() -> None:
    timeline = Timeline()
    for step in range(20):
        taken = step * 0.2 + 0.04 * (step % 2)  # published up to 50 ms before it is read
        snapshot = replace(READY, running=1, time=taken, tokens_total=round(100 * taken))
        timeline.add(EngineStats(snapshot, (), 0, None), step * 0.2 + 0.05)
    assert all(99 < rate < 126 for rate in list(timeline.tokens_per_second)[1:])


async def test_B12_the_screen_of_plots_draws_nothing_while_nothing_runs(open_app: Any, script: Any) -> None:
    async with open_app(script("Hello there."), size=(120, 36)) as d:
        await d.say("hi")
        await d.until(lambda: d.app.monitor.stats is not None and d.app.monitor.stats.idle)
        await d.press("f3")
        await d.until(lambda: isinstance(d.app.screen, StatsScreen) and d.app.screen.is_mounted)
        screen = d.app.screen
        count, timeline = -1, d.app.monitor.timeline
        while count != timeline.count:  # no sample is left
            count = timeline.count
            for _ in range(10):
                d.app._main.poll()
        await d.pilot.pause()  # the last one is drawn
        drawn: list[Any] = []
        for widget in screen.query("*"):
            before = widget.refresh
            widget.refresh = lambda *regions, _before=before, **what: (
                drawn.append(regions),
                _before(*regions),
            )[1]
        for _ in range(10):
            d.app._main.poll()
        assert timeline.count == count
        assert drawn == []


async def test_what_a_model_has_to_say_is_a_notice(open_app: Any, script: Any, monkeypatch: Any) -> None:
    load = ScriptedModel.load
    note = "threads 128 is more than this process can use: 2 on 2 processors compute"
    monkeypatch.setattr(
        ScriptedModel, "load", lambda self, config: replace(load(self, config), notes=(note,))
    )
    async with open_app(script("Hello.")) as d:
        await d.shows("threads 128 is more than this process can use")


async def test_B3_the_peak_is_measured_again_until_the_machine_was_quiet(
    stage: Any, script: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    read, busy = [], [True]
    monkeypatch.setattr("engine.bandwidth.others_run", lambda: busy[0])
    monkeypatch.setattr("termchat.tui.engines.monitor.MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(ScriptedRunner, "read_bandwidth", lambda self: read.append(1) or 1e10)
    async with stage(script("One.", "Two.")) as s:
        peaks = Peaks(tmp_path / "peaks.json")
        monitor = Monitor(s.engines, s.conversations, Streaming(s.conversations, s.store, s.listener), peaks)

        async def measured(count: int) -> None:
            def done() -> bool:
                monitor.read()
                return len(read) >= count

            await s.until(done)

        monitor.read()
        assert read == [], "nothing was answered yet"
        s.conversations.shown = await s.ask("hi")
        await measured(3)
        assert not s.engines.default.snapshot().bandwidth_peak_quiet
        busy[0] = False
        await measured(len(read) + 1)
        await s.until(lambda: s.engines.default.engine.peak.quiet)
        await s.ask("again", s.conversations.shown)
        await measured(len(read) + 1)
        await s.until(lambda: s.engines.default.snapshot().bandwidth_peak_quiet)
        count = len(read)
        for _ in range(5):
            monitor.read()
            await asyncio.sleep(0.01)
        assert len(read) <= count + 1, "it is known now"
