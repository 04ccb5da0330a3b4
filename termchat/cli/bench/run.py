"""Serves a load of random prompts and measures it, by the definitions of the NVIDIA NIM guide (design 12)."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from engine import Finished, SamplingParams
from engine.metrics import percentile

from ...draft_figures import DraftFigures
from ..console import Console
from ..errors import OK, CliError
from ..result import finite
from ..serving import Choice, Serving, serving, sized
from .report import plot, table

Mode = Literal["continuous", "sequential", "static"]
Baseline = Literal["sequential", "static"] | None

SAMPLE_SECONDS = 0.02
"""How often the use of the KV cache is looked at."""

WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be served: `requests` prompts of so many tokens, `concurrency` at a time."""

    concurrency: int
    prompt_tokens: int
    output_tokens: int
    requests: int


def run_bench(
    console: Console, choice: Choice, load: Load, baseline: Baseline, *, sweep: bool, as_json: bool
) -> int:
    """Measure and print; the exit code. UserError: the load does not fit, or the engine failed."""
    choice = sized(choice, max(load.concurrency, choice.config.sequences))

    async def run() -> list[dict[str, Any]]:
        async with serving(console, choice) as served:
            return await _measure_all(console, served, _loads(load, sweep), baseline)

    results = asyncio.run(run())
    if as_json:
        console.print_json(results if sweep else results[0])
    else:
        console.output.write("".join(table(result) for result in results))
        if sweep:
            console.output.write(plot([(result["concurrency"], result["tps_system"]) for result in results]))
    return OK


def _loads(load: Load, sweep: bool) -> list[Load]:
    if not sweep:
        return [load]
    powers = [1 << power for power in range(load.concurrency.bit_length()) if 1 << power < load.concurrency]
    share = load.requests / load.concurrency
    return [
        replace(load, concurrency=level, requests=max(1, round(level * share)))
        for level in (*powers, load.concurrency)
    ]


async def _measure_all(
    console: Console, served: Serving, loads: Sequence[Load], baseline: Mode | None
) -> list[dict[str, Any]]:
    needed, room = loads[0].prompt_tokens + loads[0].output_tokens, served.engine.info.context_length
    if needed > room:
        raise CliError(
            "prompt_too_long",
            f"{loads[0].prompt_tokens} + {loads[0].output_tokens} tokens are {needed}, but the context of "
            f"{served.choice.model.name} holds {room}",
        )
    peak = await served.bandwidth_peak()
    prompts = _prompts(served.engine.info.vocabulary, loads[0].prompt_tokens)
    await _serve(served, replace(loads[0], requests=1, output_tokens=WARM_UP_TOKENS), "sequential", prompts)
    results = []
    for load in loads:
        console.messages.note(f"{load.requests} requests, {load.concurrency} at a time")
        result = await _measure(served, load, "continuous", prompts, peak)
        if baseline is not None:
            console.messages.note(f"the same, {baseline}")
            other = await _measure(served, load, baseline, prompts, peak)
            speedup = result["tps_system"] / other["tps_system"]
            result["baseline"] = {"mode": baseline, **other, "speedup": speedup}
        results.append(result)
    return results


async def _measure(
    served: Serving, load: Load, mode: Mode, prompts: Iterator[list[int]], peak: float | None
) -> dict[str, Any]:
    """Serve the load once; the object of `--json`."""
    utilisation: list[float] = []
    started = time.perf_counter()
    with _sampled(served, utilisation):
        replies = await _serve(served, load, mode, prompts)
    span = time.perf_counter() - started
    tokens = sum(reply.usage.completion_tokens for reply in replies)
    times = [reply.timings for reply in replies]
    prefill = [item.prefill_ms for item in times if item.prefill_ms]
    bandwidth = [item.bandwidth_gbs for item in times if item.bandwidth_gbs is not None]
    per_user = [
        reply.usage.completion_tokens / reply.timings.e2e_ms * 1e3
        for reply in replies
        if reply.timings.e2e_ms
    ]
    snapshot = served.engine.snapshot()
    usages = [reply.usage for reply in replies]
    drafts = DraftFigures.of_replies(snapshot.draft, snapshot.draft_off, usages)
    achieved = _mean(bandwidth)
    if peak is not None and achieved is not None:
        peak = max(peak, achieved)  # what was measured can't be more than there is
    return {
        "concurrency": 1 if mode == "sequential" else load.concurrency,
        "prompt_tokens": load.prompt_tokens,
        "output_tokens": load.output_tokens,
        "ttft_ms": spread([item.ttft_ms for item in times]),
        "itl_ms": spread([item.itl_ms for item in times]),
        "e2e_ms": spread([item.e2e_ms for item in times]),
        "tps_user": _mean(per_user),
        "tps_system": tokens / span,
        "rps": len(replies) / span,
        "prefill_tps": _mean([load.prompt_tokens / milliseconds * 1e3 for milliseconds in prefill]),
        "bandwidth_gbs": achieved,
        "bandwidth_peak_gbs": peak,
        "kv_utilisation": _mean(utilisation),
        "draft_tokens": sum(reply.usage.draft_tokens for reply in replies),
        "accepted_tokens": sum(reply.usage.accepted_tokens for reply in replies),
        **drafts.as_dict(),
        "exact": snapshot.exact,
    }


async def _serve(served: Serving, load: Load, mode: Mode, prompts: Iterator[list[int]]) -> list[Finished]:
    """All replies of the load."""
    together = 1 if mode == "sequential" else load.concurrency
    work = list(itertools.islice(prompts, load.requests))
    if mode == "static":
        batches = [work[first : first + together] for first in range(0, len(work), together)]
        return [
            reply
            for batch in batches
            for reply in await asyncio.gather(*(_reply(served, load, prompt) for prompt in batch))
        ]
    waiting = iter(work)

    async def user() -> list[Finished]:
        return [await _reply(served, load, prompt) for prompt in waiting]

    return [
        reply for replies in await asyncio.gather(*(user() for _ in range(together))) for reply in replies
    ]


async def _reply(served: Serving, load: Load, prompt: list[int]) -> Finished:
    params = SamplingParams(temperature=0, max_tokens=load.output_tokens, ignore_eos=True)
    async with served.engine.generate(prompt, params) as stream:
        finished = await stream.result()
    if finished.error is not None:
        raise CliError(finished.error.code, finished.error.message)
    if finished.reason != "length":
        raise CliError(
            "failed", f"a reply ended early ({finished.reason}); give the KV cache more with --kv-memory"
        )
    return finished


def _prompts(vocabulary: int, length: int) -> Iterator[list[int]]:
    """Prompts of random tokens, no two alike, so that none finds another's blocks; the same in every run."""
    source = random.Random(0)
    while True:
        yield [source.randrange(vocabulary) for _ in range(length)]


@contextmanager
def _sampled(served: Serving, values: list[float]) -> Iterator[None]:
    """Look at the use of allocated KV slots while the block runs."""

    async def sample() -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            used = served.engine.snapshot().kv_utilisation
            values.extend(() if used is None else (used,))

    task = asyncio.ensure_future(sample())
    try:
        yield
    finally:
        task.cancel()


def spread(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean and percentiles; None for those that nothing defines."""
    known = [value for value in values if value is not None]
    percentiles = {f"p{percent}": percentile(known, percent / 100) for percent in (50, 95, 99)}
    return {"mean": _mean(known), **percentiles}


def _mean(values: Sequence[float]) -> float | None:
    return finite(sum(values) / len(values)) if values else None
