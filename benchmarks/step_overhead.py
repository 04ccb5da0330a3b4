"""What a step costs besides the model: scheduling, batch building, sampling, detokenizing, event delivery.

16 scripted conversations through the real engine; no model computes anything. Prints medians of steps. What
samples here is the specification in numpy: a native step spends far less on it, a greedy row nothing.

    python benchmarks/step_overhead.py MODEL.gguf
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from engine import AsyncEngine, EngineConfig, SamplingParams, testing

CONVERSATIONS = 16
TOKENS = 400


async def measure(tokenizer: str, params: SamplingParams) -> tuple[float, dict[str, float]]:
    """Median seconds of a whole step, and of its parts."""
    rng = np.random.default_rng(0)
    scripts = rng.integers(300, 40000, (CONVERSATIONS, TOKENS)).tolist()
    model = testing.ScriptedModel(scripts, tokenizer)
    parts: dict[str, list[float]] = {}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            result = function(*args, **kwargs)
            parts.setdefault(name, []).append(time.perf_counter() - started)
            return result

        return call

    async with AsyncEngine(EngineConfig(model=model, max_sequences=CONVERSATIONS)) as engine:
        service, outbox = engine._core._service, engine._outbox
        assert service is not None
        service.step = timed("step", service.step)  # type: ignore[method-assign]
        service.scheduler.plan = timed("plan", service.scheduler.plan)  # type: ignore[method-assign]
        service.scheduler.commit = timed("commit", service.scheduler.commit)  # type: ignore[method-assign]
        launch = service.model.runner.launch
        service.model.runner.launch = timed("sampling", launch)  # type: ignore[method-assign]
        outbox.send = timed("deliver", outbox.send)  # type: ignore[method-assign]
        streams = [engine.generate([5 + i], params) for i in range(CONVERSATIONS)]
        await asyncio.gather(*(stream.result() for stream in streams))
    medians = {name: statistics.median(values) for name, values in parts.items()}
    return medians["step"], medians


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="a GGUF file, for its tokenizer")
    path = parser.parse_args().model
    testing.SURE = np.float32(18)  # about as peaked as a real model's logits: sampling has work to do
    settings = {
        "greedy": SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True),
        "top-k 64": SamplingParams(top_k=64, max_tokens=TOKENS, ignore_eos=True),
        "top-k 40, top-p 0.95": SamplingParams(top_k=40, top_p=0.95, max_tokens=TOKENS, ignore_eos=True),
        "top-p 0.95": SamplingParams(top_p=0.95, max_tokens=TOKENS, ignore_eos=True),
        "full vocabulary": SamplingParams(max_tokens=TOKENS, ignore_eos=True),
    }
    for name, params in settings.items():
        total, parts = asyncio.run(measure(path, params))
        rest = ", ".join(f"{part} {seconds * 1e3:.2f}" for part, seconds in parts.items())
        print(f"{name:22s} {total * 1e3:.2f} ms a step ({rest})")


if __name__ == "__main__":
    main()
