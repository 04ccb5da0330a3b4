"""What `peers.py` measures, what is promised of it, and how it is shown."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1e6

Values = dict[str, dict[str, list[float]]]
"""Of each measurement: the figures of each engine, one a round."""


@dataclass(frozen=True, slots=True)
class Results:
    """about: what each engine says of itself. values: figures to compare. own: figures of termchat alone."""

    about: dict[str, str]
    values: Values
    own: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """A row of the table. target: least ratio of termchat to the better peer, where one is promised."""

    name: str
    unit: str
    higher_is_better: bool = True
    target: float | None = None


DECODE = {
    streams: Measurement(f"decode, {streams} stream{'s' * (streams > 1)}", "tokens/s", target=target)
    for streams, target in ((1, 1.8), (4, None), (8, None), (16, 3.0))
}
PREFILL = Measurement("prefill of 512 tokens", "tokens/s", target=1.5)
FIRST_TOKEN = Measurement("exec to first token", "ms", higher_is_better=False)
PEAK_MEMORY = Measurement("peak memory of a one-shot", "MB", higher_is_better=False)
ONE_SHOT = (FIRST_TOKEN, PEAK_MEMORY)
MEASUREMENTS = (*DECODE.values(), PREFILL, *ONE_SHOT)
DECODE_TOKENS = 64
PREFILL_TOKENS = 512
MESSAGE_TOKENS = 24


def ratio(measurement: Measurement, values: Mapping[str, list[float]]) -> float | None:
    """termchat to the better peer of each round, the median of the rounds; None without a peer."""
    peers = [series for name, series in values.items() if name != "termchat"]
    if not peers:
        return None
    best: Callable[..., float] = max if measurement.higher_is_better else min
    pairs = zip(values["termchat"], (best(round) for round in zip(*peers, strict=True)), strict=True)
    return statistics.median(own / peer for own, peer in pairs)


def table(values: Values) -> str:
    """Markdown: the median of each engine and termchat's ratio to the better peer."""
    names = list(values[PREFILL.name])
    lines = [
        f"| | {' | '.join(names)} | termchat / better peer |",
        "|---" * (len(names) + 2) + "|",
    ]
    for measurement in MEASUREMENTS:
        if measurement.name not in values:
            continue
        row = values[measurement.name]
        cells = [f"{statistics.median(row[name]):,.0f}" for name in names]
        found = ratio(measurement, row)
        target = "" if measurement.target is None else f" (target {measurement.target})"
        shown = "" if found is None else f"{found:.2f}{target}"
        lines.append(f"| {measurement.name}, {measurement.unit} | {' | '.join(cells)} | {shown} |")
    return "\n".join(lines)


def targets(results: Results, model: Path) -> Iterator[tuple[str, bool]]:
    """What the project promises of this run, and whether it holds."""
    values, own = results.values, results.own
    for measurement in (*DECODE.values(), PREFILL):
        found = ratio(measurement, values[measurement.name])
        if found is not None and measurement.target is not None:
            text = f"{measurement.name}: {found:.2f} times the better peer, target {measurement.target}"
            yield text, found >= measurement.target
    pairs = zip(own["achieved"], own["peak"], strict=True)
    share = statistics.median(achieved / peak for achieved, peak in pairs)
    yield f"memory traffic at 1 stream: {share:.0%} of the peak, target 70%", share >= 0.7
    turns = statistics.median(b / a for a, b in zip(own["first"], own["second"], strict=True))
    yield f"TTFT of a second turn: {turns:.2f} of the first, target 0.20", turns < 0.2
    if FIRST_TOKEN.name not in values:
        return
    shots = values[FIRST_TOKEN.name]
    if "llama.cpp" in shots:
        pairs = zip(shots["termchat"], shots["llama.cpp"], strict=True)
        start = statistics.median(ours / peer for ours, peer in pairs)
        yield f"exec to first token: {start:.2f} times llama.cpp's, target 1.5", start <= 1.5
    size = model.stat().st_size / MEGABYTE
    memory, limit = statistics.median(values[PEAK_MEMORY.name]["termchat"]), 2 * size + 60
    text = f"peak memory of a one-shot: {memory:.0f} MB, target {limit:.0f} (2 x {size:.0f} + 60, without KV)"
    yield text, memory < limit


def machine() -> str:
    """What the figures were measured on."""
    processor = platform.processor() or platform.machine()
    memory = 0.0
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cpus, load = os.cpu_count(), os.getloadavg()[0]
    today = datetime.date.today().isoformat()
    return f"{processor}, {cpus} CPUs, {memory:.0f} GiB, load {load:.1f} before the run, {today}"
