import json
import math

import pytest

from engine.metrics import EngineMetrics, from_times, percentile, spread_intervals
from engine.types import Timings, as_dict


def test_B059_speed_is_that_of_decoding_and_the_first_token_is_no_interval() -> None:
    times = [2.0 + 0.1 * i for i in range(11)]
    timings = from_times(0.0, 0.5, times)
    assert timings.ttft_ms == pytest.approx(2000)
    assert timings.queue_ms == pytest.approx(500)
    assert timings.prefill_ms == pytest.approx(1500)
    assert timings.tokens_per_second == pytest.approx(10)
    assert timings.itl_ms == pytest.approx(100)
    assert timings.itl_p95_ms == pytest.approx(100)
    assert timings.e2e_ms == pytest.approx(3000)


@pytest.mark.parametrize("times", [[], [2.0], [2.0, 2.0]])
def test_B061_figures_of_very_short_replies_are_undefined_not_infinite(times: list[float]) -> None:
    timings = from_times(0.0, 1.0, times)
    assert timings.tokens_per_second is None
    json.dumps(as_dict(timings), allow_nan=False)


def test_one_token_has_a_ttft_but_no_interval() -> None:
    timings = from_times(1.0, 1.0, [3.0])
    assert (timings.ttft_ms, timings.e2e_ms, timings.itl_ms, timings.itl_p95_ms) == (2000, 2000, None, None)


def test_a_request_that_never_ran_has_no_latency() -> None:
    assert from_times(1.0, None, []) == Timings()


def test_tokens_of_one_step_share_its_duration() -> None:
    intervals = spread_intervals([1.0, 1.3, 1.3, 1.3, 1.5])
    assert intervals == pytest.approx([0.1, 0.1, 0.1, 0.2])
    assert from_times(0, 0, [1.0, 1.3, 1.3, 1.3, 1.5]).itl_ms == pytest.approx(125)


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(i) for i in range(1, 101)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.95) == 95
    assert percentile([7.0], 0.95) == 7
    assert percentile([], 0.5) is None


def test_engine_rates_are_over_the_window_and_end_with_it() -> None:
    metrics = EngineMetrics()
    for i in range(21):
        metrics.step(10 + i * 0.05, 0.05, 4, 4, 10**8, decode=True)
    assert metrics.tokens_per_second(11.0) == pytest.approx(80)
    assert metrics.bandwidth_gbs(11.0) == pytest.approx(2.0)
    assert metrics.last_step_rows == 4
    assert percentile(list(metrics.intervals), 0.5) == pytest.approx(0.05)
    assert metrics.tokens_per_second(20.0) is None
    assert metrics.bandwidth_gbs(20.0) is None


def test_an_idle_pause_is_no_interval_between_tokens() -> None:
    metrics = EngineMetrics()
    metrics.step(1.0, 0.1, 1, 1, 0, decode=True)
    metrics.idle()
    metrics.step(60.0, 0.1, 1, 1, 0, decode=True)
    assert list(metrics.intervals) == []
    assert not any(math.isinf(value) for value in metrics.intervals)
