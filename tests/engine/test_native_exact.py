"""Native logits of the default model, bit for bit the same through every path of the engine (design 8)."""

from __future__ import annotations

import asyncio
import random
import shutil
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from engine import AsyncEngine, EngineConfig, SamplingParams
from engine.model import LoadedModel, load_model
from engine.runner import StepResult
from engine.speculative.acceptance import accept
from engine.step_plan import StepPlan
from kernels.native import available, unavailable_reason

pytestmark = pytest.mark.slow

Digests = dict[int, str]
"""Of the float32 logits of a request's sampled rows, by the position of the token drawn from them."""

LENGTHS = (1, 31, 64, 200)
OUTPUT = 40
"""Tokens of the replies alone; the other tests compare as many of them as they have time for."""

FEW = 12
TEXT = random.Random(5)
PROMPTS = [[TEXT.randrange(17, 49000) for _ in range(length)] for length in LENGTHS]
SCORED = [TEXT.randrange(17, 49000) for _ in range(100)]
GREEDY = SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True)
PARAMS = [GREEDY, replace(GREEDY, temperature=0.8, top_p=0.95, seed=7)] * 2


@pytest.fixture(scope="module", autouse=True)
def _library() -> None:
    """With a compiler the library has to be there; without one there is nothing to test."""
    if not available():
        compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        (pytest.fail if compiler else pytest.skip)(unavailable_reason())


class Recorder:
    """A model that asks every step for its logits and keeps their digests."""

    def __init__(self, path: object) -> None:
        self.path = path
        self.steps: list[StepPlan] = []
        self.digests: dict[int, Digests] = {}

    def load(self, config: EngineConfig) -> LoadedModel:
        model = load_model(replace(config, model=self.path))
        self._launch = model.runner.launch
        model.runner.launch = self.launch  # type: ignore[method-assign]
        return model

    def launch(self, plan: StepPlan, *, logits: bool, prepared: bool = False) -> StepResult:
        result = self._launch(plan, logits=True, prepared=prepared).result()
        assert result.logits is not None
        self.steps.append(plan)
        rows = zip(plan.samples(), result.logits, strict=True)
        for run, taken in zip(plan.runs, accept(plan, list(result.tokens)), strict=True):
            for place, ((_, sequence, position), row) in enumerate(islice(rows, run.samples)):
                # A row behind a draft that was not accepted is of another text.
                if place < len(taken):
                    # A preempted sequence computes positions again: they have to give the same bits, too.
                    digest = blake2b(row.tobytes(), digest_size=16).hexdigest()
                    assert self.digests.setdefault(sequence.id, {}).setdefault(position, digest) == digest
        return result if logits else StepResult(result.tokens)


async def replies(
    config: EngineConfig,
    *,
    seed: int,
    companions: int | None,
    tokens: int = FEW,
    rounds: int = 1,
    own: int = len(LENGTHS),
) -> tuple[list[tuple[Digests, tuple[int, ...]]], AsyncEngine, Recorder]:
    """Digests and tokens of the first `own` prompts' replies among random companions, of the last round.

    companions: None also keeps the prompts from each other: each waits for the one before it.
    """
    rng = random.Random(seed)
    recorder = Recorder(config.model)
    async with AsyncEngine(replace(config, model=recorder)) as engine:
        assert (engine.snapshot().backend, engine.snapshot().exact) == ("native", True)
        for _ in range(rounds):
            prompts: list[tuple[list[int], SamplingParams]] = [
                (prompt, replace(params, max_tokens=tokens))
                for prompt, params in zip(PROMPTS[:own], PARAMS[:own], strict=True)
            ]
            for _ in range(companions or 0):
                length = rng.choice([1, 2, 20, 33, 90])
                noise = [rng.randrange(17, 49000) for _ in range(length)]
                prompts.append((noise, replace(GREEDY, max_tokens=rng.randrange(1, 2 * tokens))))
            order = rng.sample(range(len(prompts)), len(prompts))
            streams: dict[int, Any] = {}
            for index in order:
                streams[index] = engine.generate(*prompts[index])
                if companions is None:
                    await streams[index].result()
                elif rng.random() < 0.5:
                    await asyncio.sleep(rng.random() * 0.02)
            finals = {index: await stream.result() for index, stream in streams.items()}
        assert all(final.error is None for final in finals.values()), finals
        found = [(recorder.digests[streams[i].id], finals[i].token_ids) for i in range(own)]
        return found, engine, recorder


@pytest.fixture(scope="module")
def config(default_model: Path) -> EngineConfig:
    return EngineConfig(model=default_model, backend="native", threads=2, context_length=512, kv_blocks=400)


@pytest.fixture(scope="module")
def alone(config: EngineConfig) -> list[tuple[Digests, tuple[int, ...]]]:
    """Every prompt by itself, on two threads, in chunks as large as they come."""
    found, _, recorder = asyncio.run(replies(config, seed=0, companions=None, tokens=OUTPUT))
    assert max(len(plan.runs) for plan in recorder.steps) == 1
    assert all(len(digests) == OUTPUT for digests, _ in found)
    assert len({digest for digests, _ in found for digest in digests.values()}) == OUTPUT * len(PROMPTS)
    return found


def drawn() -> int:
    seed = random.randrange(10**9)
    print("seed", seed)
    return seed


def same(found: list[tuple[Digests, tuple[int, ...]]], alone: list[tuple[Digests, tuple[int, ...]]]) -> bool:
    """Whether the tokens and the bits of their logits are those of the replies alone, as far as they go."""
    return all(
        tokens == expected_tokens[: len(tokens)]
        and digests == {position: expected[position] for position in digests}
        and len(digests) == len(tokens)
        for (digests, tokens), (expected, expected_tokens) in zip(found, alone, strict=False)
    )


@pytest.mark.parametrize("companions", [1, 6, 28])
def test_logits_are_the_same_in_any_batch(config: EngineConfig, alone: Any, companions: int) -> None:
    found, _, recorder = asyncio.run(replies(config, seed=drawn(), companions=companions))
    assert max(len(plan.runs) for plan in recorder.steps) > 1
    assert same(found, alone)


@pytest.mark.parametrize("companions", [None, 5])
def test_logits_are_the_same_in_any_chunks(config: EngineConfig, alone: Any, companions: int | None) -> None:
    rng = random.Random(seed := drawn())
    small = replace(
        config,
        max_batch_tokens=rng.randrange(16, 90),
        max_sequences=12,
        prefill_chunk=rng.choice([1, 7, 16, 33, 50]),
        block_size=rng.choice([16, 32]),
    )
    print(small)
    found, _, recorder = asyncio.run(replies(small, seed=seed, companions=companions))
    assert max(run.count for plan in recorder.steps for run in plan.runs) < max(LENGTHS)
    assert same(found, alone)


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_logits_are_the_same_with_a_cached_beginning(
    config: EngineConfig, alone: Any, prefix_cache: bool
) -> None:
    cached = replace(config, prefix_cache=prefix_cache)
    found, engine, _ = asyncio.run(replies(cached, seed=drawn(), companions=3, rounds=2))
    assert (engine.snapshot().prefix_tokens_saved > 0) == prefix_cache
    assert same(found, alone)


def test_logits_are_the_same_after_preemption(config: EngineConfig, alone: Any) -> None:
    admitted = sum(-(-(length + 1) // 16) for length in LENGTHS) + len(
        LENGTHS
    )  # with a block each to grow into
    needed = sum(-(-(length + OUTPUT) // 16) for length in LENGTHS)
    assert admitted < needed
    # Replies that go on side by side to their ends: with drafts one may end before another needs its blocks.
    tight = replace(config, block_size=16, kv_blocks=admitted, draft_model="none")
    found, engine, _ = asyncio.run(replies(tight, seed=drawn(), companions=0, tokens=OUTPUT))
    assert engine.snapshot().preemptions > 0
    assert same(found, alone)


def other_machines() -> list[tuple[str, int]]:
    """Instruction sets of this CPU with numbers of threads."""
    from kernels.native.library import kernels

    isas = [isa for isa in ("amx", "avx512", "avx2") if available() and kernels(isa)]
    return [(isa, threads) for isa in isas for threads in (1, 2)] + [("portable", 2)]


@pytest.mark.parametrize(("isa", "threads"), other_machines())
def test_logits_are_the_same_on_any_threads_and_instructions(
    config: EngineConfig, alone: Any, isa: Any, threads: int
) -> None:
    machine = replace(config, threads=threads, cpu_isa=isa)
    if isa == "portable":  # so slow that a little has to do
        run = replies(machine, seed=drawn(), companions=0, tokens=4, own=2)
    else:
        run = replies(machine, seed=drawn(), companions=2)
    found, _, _ = asyncio.run(run)
    assert same(found, alone)


def test_scores_are_the_same_in_any_chunks_and_batch(config: EngineConfig) -> None:
    """Every position of a prompt, not only those that are sampled from."""
    rng = random.Random(drawn())

    async def score(config: EngineConfig, companions: int) -> bytes:
        async with AsyncEngine(config) as engine:
            others = [
                engine.generate([rng.randrange(17, 49000) for _ in range(rng.randrange(1, 60))], GREEDY)
                for _ in range(companions)
            ]
            scores = await engine.score(SCORED)
            for stream in others:
                assert (await stream.result()).error is None
        return blake2b(scores.tobytes()).digest()

    expected = asyncio.run(score(config, 0))
    chunks = replace(config, max_batch_tokens=rng.randrange(16, 60), max_sequences=16, threads=1)
    assert asyncio.run(score(chunks, 7)) == expected
    assert asyncio.run(score(replace(config, cpu_isa="avx2"), 3)) == expected
