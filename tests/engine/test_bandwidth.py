"""Figures that are true: the peak, rates of the same moments, what is counted."""

import asyncio

import pytest

from engine import AsyncEngine, EngineConfig, Message, SamplingParams
from engine.bandwidth import Peak, PeakBandwidth
from engine.metrics import EngineMetrics, rate_within
from engine.roofline import Traffic
from engine.testing import ScriptedModel, ScriptedRunner


class Reading:
    def __init__(self, *rates):
        self.rates = list(rates)

    def read_bandwidth(self):
        return self.rates.pop(0)


@pytest.fixture
def others(monkeypatch):
    """others(True): other programs use the machine from now on."""
    state = [False]
    monkeypatch.setattr("engine.bandwidth.others_run", lambda: state[0])
    return lambda run: state.__setitem__(0, run)


def test_B3_the_best_peak_is_kept_and_quiet_once_it_was_measured_quietly(others):
    peak, runner = PeakBandwidth(), Reading(15e9, 8e9, 22e9, 19e9)
    others(True)
    peak.measure(runner)
    assert peak.best == Peak(15e9, quiet=False)
    peak.measure(runner)
    assert peak.best == Peak(15e9, quiet=False)
    others(False)
    peak.measure(runner)
    assert peak.best == Peak(22e9, quiet=True)
    others(True)
    peak.measure(runner)
    assert peak.best == Peak(22e9, quiet=True)


def test_B3_the_peak_is_never_below_what_was_achieved(others):
    peak = PeakBandwidth()
    peak.achieved(28e9)
    assert peak.best is None, "nothing was measured"
    peak.measure(Reading(15e9))
    peak.achieved(28.1e9)
    assert peak.best is not None
    assert peak.best.gbs == pytest.approx(28.1)
    peak.tell(Peak(20e9, quiet=False))
    assert peak.best.gbs == pytest.approx(28.1)


def test_nothing_to_measure_is_no_peak(others):
    peak = PeakBandwidth()
    peak.measure(Reading(None))
    peak.measure(Reading(0.0))
    assert peak.best is None


def test_only_a_conversation_alone_raises_the_peak():
    metrics = EngineMetrics()
    metrics.step(1.0, 0.01, 4, 4, 900, decode=True)
    assert metrics.best_alone == 0
    metrics.step(2.0, 0.01, 1, 1, 500, decode=True)
    metrics.step(3.0, 0.01, 1, 1, 100, decode=True)
    assert metrics.best_alone == pytest.approx(50_000)


def test_B11_the_parts_of_the_speed_add_up_to_the_total():
    metrics = EngineMetrics()
    times = {"a": [], "b": []}
    for index in range(400):
        now = 100 + index * 0.01
        both = index >= 250  # b begins late, and is slower at first
        metrics.step(now, 0.01, 1 + both, 1 + both, 0, decode=True)
        times["a"].append(now)
        if both:
            times["b"].append(now)
    now = 100 + 399 * 0.01
    total = metrics.tokens_per_second(now)
    parts = [rate_within(each, metrics.window(now)) for each in times.values()]
    assert sum(parts) == pytest.approx(total)
    assert rate_within([1.0, 2.0], metrics.window(now)) is None, "none of its tokens is of these moments"
    assert rate_within([1.0], None) is None


async def test_B3_a_busy_engine_is_not_held_up_by_a_measurement(default_model, monkeypatch):
    """Measured while nothing runs; asked for while a reply runs, the peak that is known is told."""
    read = []

    def read_bandwidth(self):
        read.append(1)
        return 10e9

    monkeypatch.setattr(ScriptedRunner, "read_bandwidth", read_bandwidth)
    model = ScriptedModel([[5] * 400], default_model, eos=[0], step_seconds=0.02)
    async with AsyncEngine(EngineConfig(model=model)) as engine:
        async with engine.generate([1, 2], SamplingParams(temperature=0, max_tokens=300)):
            while not engine.snapshot().running:
                await asyncio.sleep(0.001)
            assert await engine.bandwidth_peak() is None
            engine.tell_peak(Peak(12e9, quiet=True))
            assert await engine.bandwidth_peak() == 12.0
            assert read == []
            while engine.snapshot().bandwidth_peak_gbs is None:
                await asyncio.sleep(0.01)
        while engine.snapshot().running:
            await asyncio.sleep(0.01)
        assert await engine.bandwidth_peak() == 12.0
        assert await engine.bandwidth_peak() == 12.0
        assert len(read) == 2, "measured again when idle, and the best is kept"
        assert engine.peak is not None


async def test_B3_a_snapshot_never_shows_more_than_its_peak(default_model):
    async with AsyncEngine(EngineConfig(model=default_model, kv_blocks=16)) as engine:
        engine.tell_peak(Peak(1e6, quiet=False))  # far too little
        params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
        await engine.generate([Message("user", "Count to ten.")], params).result()
        snapshot = engine.snapshot()
        assert snapshot.bandwidth_gbs is not None
        assert snapshot.bandwidth_peak_gbs >= snapshot.bandwidth_gbs
        assert not snapshot.bandwidth_peak_quiet
        assert snapshot.decode_bytes > 20 * 96_000_000
        assert snapshot.decode_seconds > 0
        assert engine.info.place.count(";") == 2


def test_traffic_without_windows_is_as_it_was():
    assert Traffic(10, 3).token_bytes(7) == 10 + 9 * 3
