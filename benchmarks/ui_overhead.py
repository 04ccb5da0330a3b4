"""What the interface costs while replies stream: share of one core, lag of the event loop, tokens a second.

The engine, scheduler and store are real, the model is a script with steps of a fixed length, so the ratio to
the same streams without an interface is the interface's own cost.

    python benchmarks/ui_overhead.py [--chats 8] [--tokens 400] [--step-ms 15]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from engine import AsyncEngine, EngineConfig, SamplingParams
from engine.testing import ScriptedModel
from engine.tokenization import load_tokenizer
from termchat.config import Config
from termchat.download import ensure
from termchat.paths import Paths
from termchat.registry import Registry
from termchat.tui.app import Options, TermchatApp

KINDS = {
    "prose": "The quick brown fox jumps over the lazy dog. " * 12 + "\n\n",
    "list": "- an item of a list with some words in it\n",
    "code": "    value = compute(first, second)  # a line of code\n",
}


class Lag:
    """How late the event loop is: a sleep of 5 ms, over and over."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def run(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.005)
            self.seconds.append(time.perf_counter() - begun - 0.005)

    def p99_ms(self) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)] * 1e3


def scripted(path: Path, kind: str, chats: int, tokens: int, step: float) -> ScriptedModel:
    text = ("```python\n" if kind == "code" else "") + KINDS[kind] * (tokens // 8)
    ids = load_tokenizer(path).encode(text)[:tokens]
    return ScriptedModel([ids] * chats, path, step_seconds=step)


async def bare(model: ScriptedModel, chats: int) -> dict[str, float]:
    """The same streams, read and dropped."""
    async with AsyncEngine(EngineConfig(model=model)) as engine:
        begun, cpu = time.perf_counter(), time.thread_time()
        streams = [engine.generate("x", SamplingParams(temperature=0)) for _ in range(chats)]
        results = await asyncio.gather(*(stream.result() for stream in streams))
        wall = time.perf_counter() - begun
        tokens = sum(result.usage.completion_tokens for result in results)
        return {"tokens_per_second": tokens / wall, "duty": (time.thread_time() - cpu) / wall}


async def with_interface(model: ScriptedModel, path: Path, chats: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = Paths(*(folder / part for part in ("config", "data", "cache", "state")))
        app = TermchatApp(
            paths,
            Config.load(paths.config_file),
            Options(sampling={"temperature": 0.0}),
            read_registry=lambda: Registry({}, str(path), folder),
            engine_config=lambda resolved: EngineConfig(model=model),
        )
        async with app.run_test(size=(160, 50)):
            while app.engines.default.state != "ready":
                await asyncio.sleep(0.02)
            for number in range(chats):
                chat = app.chats.new()
                await app.chats.show(chat)
                app.turns.submit(chat, f"question {number}")
                while chat.id is None:
                    await asyncio.sleep(0.001)
            result = await measure(app)
            await app.action_quit()
        app.history.close()
        return result


async def measure(app: TermchatApp) -> dict[str, float]:
    """Until all replies are there; the first and the last third of the time are compared."""
    lag = Lag()
    task = asyncio.create_task(lag.run())
    begun, cpu = time.perf_counter(), time.thread_time()
    marks: list[tuple[float, float]] = []
    while any(chat.busy for chat in app.chats.all):
        await asyncio.sleep(0.05)
        marks.append((time.perf_counter(), time.thread_time()))
    task.cancel()
    wall = marks[-1][0] - begun
    third = len(marks) // 3

    def duty(first: tuple[float, float], last: tuple[float, float]) -> float:
        return (last[1] - first[1]) / (last[0] - first[0])

    tokens = sum(
        message.metrics.get("completion_tokens", 0)
        for chat in app.chats.all
        for message in (chat.tree or {}).values()
    )
    return {
        "tokens_per_second": tokens / wall,
        "duty": (marks[-1][1] - cpu) / wall,
        "duty_end_over_start": duty(marks[-third], marks[-1]) / duty(marks[0], marks[third]),
        "loop_lag_p99_ms": lag.p99_ms(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chats", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--step-ms", type=float, default=15)
    options = parser.parse_args()
    registry = Registry.load(Paths.default())
    path = ensure(registry, registry.default)
    results: dict[str, Any] = {}
    for kind in KINDS:

        def model(kind: str = kind) -> ScriptedModel:
            return scripted(path, kind, options.chats, options.tokens, options.step_ms / 1e3)

        before = asyncio.run(bare(model(), options.chats))
        shown = asyncio.run(with_interface(model(), path, options.chats))
        ratio = shown["tokens_per_second"] / before["tokens_per_second"]
        results[kind] = {"without": before, "with": shown, "speed_with_over_without": ratio}
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
