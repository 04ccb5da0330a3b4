"""What the terminal interface costs while replies stream: tokens a second, share of a core, lag of its loop.

Whole processes in turns: the engine alone with consumers that read along, and the program itself on a
pseudo-terminal of 160 x 50 that is read and dropped, with the same conversations, the last one on screen. The
figure that counts is the median of the ratios of neighbours. Times of the interface are of its thread.

    python benchmarks/ui_overhead.py [--chats 8] [--tokens 400] [--runs 6] [--model NAME] [--profile 30]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import fcntl
import io
import json
import os
import pstats
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import AsyncEngine, EngineConfig, EngineSnapshot, Message, SamplingParams
from termchat.config import Config
from termchat.download import ensure
from termchat.paths import Paths
from termchat.registry import Registry
from termchat.tui.app import TermchatApp
from termchat.tui.run import run
from termchat.tui.start import Options

SUBJECTS = (
    "the sea",
    "a mountain village",
    "the night train",
    "an old clock",
    "the last library",
    "a garden in winter",
    "two rivers",
    "the city of bridges",
)
LOOK_SECONDS = 0.05


def question(number: int) -> str:
    """Answered at length, so that all replies reach their limit."""
    return f"Tell me a very long story about {SUBJECTS[number % len(SUBJECTS)]}."


class Meter:
    """Watches an engine from its event loop, every 50 ms, between the moments when all conversations decode.

    How late it is called is the loop's lag; the time of its thread on the processor, the loop's duty.
    """

    def __init__(self, engine: AsyncEngine, chats: int) -> None:
        self._engine = engine
        self._streams = chats
        self._readings: list[tuple[float, float, EngineSnapshot]] = []  # wall, thread's time, snapshot
        self._lag: list[float] = []

    async def run(self) -> None:
        """Until the first reply ends."""
        while True:
            due = time.perf_counter() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            now, snapshot = time.perf_counter(), self._engine.snapshot()
            decoding = sum(row.state == "decode" for row in snapshot.conversations)
            if self._readings and decoding < self._streams:
                return
            if snapshot.tokens_total and not snapshot.running:
                raise RuntimeError("a reply was over before the last one began; ask for more tokens")
            if decoding == self._streams:
                self._lag.append(now - due)
                if not self._readings or self._readings[-1][2] is not snapshot:
                    self._readings.append((now, time.thread_time(), snapshot))

    def result(self) -> dict[str, float]:
        """Tokens a second of all, duty as a share of one core, lag in ms."""
        (begun, cpu, first), (ended, cpu_ended, last) = self._readings[0], self._readings[-1]
        lag = sorted(self._lag)
        return {
            "tokens_per_second": (last.tokens_total - first.tokens_total) / (ended - begun),
            "duty": (cpu_ended - cpu) / (ended - begun),
            "loop_lag_p50_ms": lag[len(lag) // 2] * 1e3,
            "loop_lag_p99_ms": lag[int(len(lag) * 0.99)] * 1e3,
        }


async def bare(path: Path, chats: int, tokens: int) -> dict[str, float]:
    """The same streams, read and dropped."""
    params = SamplingParams(temperature=0, max_tokens=tokens)
    async with AsyncEngine(EngineConfig(model=path)) as engine:
        streams = [engine.generate([Message("user", question(n))], params) for n in range(chats)]
        results = asyncio.gather(*(stream.result() for stream in streams))
        meter = Meter(engine, chats)
        await meter.run()
        await results
        return meter.result()


class MeasuredApp(TermchatApp):
    """The program, which is asked the questions as soon as it can answer, and left when all is said."""

    streams, profile = 8, 0
    result: dict[str, Any] | None = None

    def on_mount(self) -> None:
        """Textual calls that of the program, too."""
        self.run_worker(self._drive(), exit_on_error=True)

    async def _drive(self) -> None:
        engine = await self.engines.default.ready()
        for number in range(self.streams):
            conversation = self.conversations.new()
            await self.conversations.show(conversation)
            self.turns.submit(conversation, question(number))
            while conversation.id is None:
                await asyncio.sleep(0.001)
        meter = Meter(engine, self.streams)
        profiler = cProfile.Profile(time.thread_time)
        if self.profile:
            profiler.enable()
        await meter.run()
        profiler.disable()
        self.result = {**meter.result(), "profile": _dearest(profiler, self.profile)}
        await self.action_quit()


def _dearest(profiler: cProfile.Profile, count: int) -> str:
    """The functions that took most time, by their own and with what they call."""
    text = io.StringIO()
    if count:
        stats = pstats.Stats(profiler, stream=text)
        stats.sort_stats("tottime").print_stats(count)
        stats.sort_stats("cumulative").print_stats(count)
    return text.getvalue()


def with_interface(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The program on the terminal that is its standard input and output."""
    with tempfile.TemporaryDirectory() as name:
        paths = replace(Paths.default(), **{part: Path(name, part) for part in ("config", "data", "state")})
        sampling = {"temperature": 0.0, "max_tokens": options.tokens}
        app = MeasuredApp(paths, Config.load(paths.config_file), Options(model=str(path), sampling=sampling))
        app.streams, app.profile = options.chats, options.profile
        run(app, lambda leave, last: contextlib.nullcontext(), lambda: 0, print)
    assert app.result is not None, "it was measured"
    return app.result


def measured(part: str, arguments: list[str]) -> dict[str, Any]:
    """One run in a process of its own, on a terminal of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    results, writer = os.pipe()

    def drop() -> None:
        with contextlib.suppress(OSError):  # the terminal was closed
            while os.read(master, 1 << 16):
                pass

    child = subprocess.Popen(
        [sys.executable, __file__, "--part", part, "--results", str(writer), *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        pass_fds=[writer],
        env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
    )
    os.close(slave)
    os.close(writer)
    threading.Thread(target=drop, daemon=True).start()
    with os.fdopen(results) as file:
        text = file.read()
    if child.wait() != 0 or not text:
        raise SystemExit(f"the run {part!r} failed")
    os.close(master)
    found: dict[str, Any] = json.loads(text)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chats", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--runs", type=int, default=6, help="pairs of runs")
    parser.add_argument("--model", help="name or path; without it the default model")
    parser.add_argument(
        "--profile", type=int, default=0, metavar="N", help="the interface's N dearest functions, on stderr"
    )
    parser.add_argument("--part", choices=("bare", "interface"), help=argparse.SUPPRESS)
    parser.add_argument("--results", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    registry = Registry.load(Paths.default())
    path = ensure(registry, registry.default) if not options.model else registry.resolve(options.model).path
    if options.part:
        result = (
            asyncio.run(bare(path, options.chats, options.tokens))
            if options.part == "bare"
            else with_interface(path, options)
        )
        os.write(options.results, json.dumps(result).encode())
        return
    pairs: list[dict[str, Any]] = []
    for _ in range(options.runs):
        pair = {part: measured(part, sys.argv[1:]) for part in ("bare", "interface")}
        pair["ratio"] = pair["interface"]["tokens_per_second"] / pair["bare"]["tokens_per_second"]
        pairs.append(pair)
        print(pair["interface"].pop("profile"), end="")
        alone, shown = pair["bare"], pair["interface"]
        print(
            f"{alone['tokens_per_second']:7.1f} tokens/s alone, {shown['tokens_per_second']:7.1f} with the "
            f"interface: {pair['ratio']:.3f}; duty {100 * shown['duty']:.1f} % ({100 * alone['duty']:.1f} % "
            f"alone); lag p99 {shown['loop_lag_p99_ms']:.1f} ms ({alone['loop_lag_p99_ms']:.1f} ms alone)"
        )

    def median(name: str) -> float:
        return statistics.median(pair["interface"][name] for pair in pairs)

    print(
        f"median: ratio {statistics.median(pair['ratio'] for pair in pairs):.3f}, "
        f"duty {100 * median('duty'):.1f} %, lag p99 {median('loop_lag_p99_ms'):.1f} ms; "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
