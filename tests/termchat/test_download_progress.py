from __future__ import annotations

from termchat.download.progress import Meter, Progress, format_progress
from termchat.units import duration, size


def test_progress_never_goes_back_and_has_rate_and_eta() -> None:
    now = 0.0
    events: list[Progress] = []
    meter = Meter(events.append, lambda: now)
    for done in (0, 100, 200, 50, 300, 1000):
        meter.report("download", done, 1000)
        now += 1
    assert [event.done for event in events] == [0, 100, 200, 200, 300, 1000]
    assert events[2].rate == 100
    assert events[2].eta == 8
    meter.report("verify", 0, 1000)
    assert events[-1].phase == "verify"
    assert events[-1].done == 0


def test_progress_comes_at_most_ten_times_a_second_and_always_at_the_end() -> None:
    now = 0.0
    events: list[Progress] = []
    meter = Meter(events.append, lambda: now)
    for done in range(1001):
        meter.report("download", done, 1000)
        now += 0.001
    assert 10 <= len(events) <= 12
    assert events[-1].done == 1000


def test_the_line_that_shows_progress() -> None:
    half = Progress("download", 50_000_000, 100_000_000, 12_300_000)
    assert format_progress(half) == "downloading  50.0 MB of 100.0 MB   50 %  12.3 MB/s  4 s left"
    assert format_progress(half, bar=4).split("  ")[1] == "██░░"
    assert format_progress(half, bar=4, ascii_only=True).split("  ")[1] == "##.."
    assert format_progress(Progress("download", 1234)) == "downloading  1.2 kB"
    assert format_progress(Progress("verify", 10, 10, 5)) == "verifying  10 B of 10 B  100 %"
    assert format_progress(Progress("resolve")) == "looking for the file"
    assert [size(n) for n in (0, 999, 1000, 98_362_432, 10**9, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "98.4 MB",
        "1.0 GB",
        "5.0 TB",
    ]
    assert [duration(s) for s in (-1, 0.4, 59.4, 60, 185, 7800)] == [
        "0 s",
        "0 s",
        "59 s",
        "1 min 0 s",
        "3 min 5 s",
        "2 h 10 min",
    ]
