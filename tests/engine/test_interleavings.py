"""Any interleaving of requests on a real (tiny, random) model gives each the tokens it gets alone.

Random submits, forks, aborts, ends, chunk lengths and preemptions over a small pool; the block audit after
each step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from engine.blocks import BlockPool
from engine.chunking import ChunkBudget
from engine.models.decoder import decoder
from engine.models.spec import LayerSpec, ModelSpec
from engine.models.weights import place
from engine.roofline import Traffic
from engine.runner import ModelRunner
from engine.sampler import SamplerState
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.types import SamplingParams
from kernels.backends import open_backend
from kernels.interface import BackendSettings, CacheShape, Limits
from random_weights import RandomTensors

SPEC = ModelSpec(
    architecture="llama",
    layers=(LayerSpec(),) * 2,
    width=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    feed_forward=96,
    vocabulary=97,
    context_length=512,
    norm_eps=1e-5,
)
BLOCKS = 8
MAX_SEQUENCES = 6
MAX_TOKENS = 48


class AnyChunk(ChunkBudget):
    def __init__(self, rng: random.Random) -> None:
        super().__init__(None, MAX_TOKENS)
        self._rng = rng

    def limit(self) -> int:
        return self._rng.randint(1, MAX_TOKENS)


class Machine:
    """A runner and a scheduler over a pool, stepped by hand."""

    def __init__(
        self, runner: ModelRunner, block_size: int, rng: random.Random, *, prefix_cache: bool = True
    ) -> None:
        self.runner = runner
        self.pool = BlockPool(BLOCKS * 32 // block_size, block_size, prefix_cache=prefix_cache)
        self.scheduler = Scheduler(
            self.pool, AnyChunk(rng), max_batch_tokens=MAX_TOKENS, max_sequences=MAX_SEQUENCES
        )
        self.mixed = 0

    def step(self) -> list[tuple[Sequence, int]]:
        plan = self.scheduler.plan()
        assert not plan.exhausted
        if not plan.runs:
            return []
        decodes = sum(run.count == 1 and run.sequence.output_length > 0 for run in plan.runs)
        self.mixed += 0 < decodes < len(plan.runs)
        tokens = self.runner.run(plan, logits=False).tokens
        self.scheduler.commit(plan)
        sampled = [run.sequence for run in plan.runs if run.samples]
        for sequence, token in zip(sampled, tokens, strict=True):
            sequence.append(token)
        self.pool.audit(self.scheduler.tables)
        return list(zip(sampled, tokens, strict=True))


@pytest.fixture(params=[("reference", 16, 2), ("native", 16, 3), ("native", 32, 3)])
def machine_parts(request: pytest.FixtureRequest) -> Iterator[tuple[ModelRunner, int, int]]:
    """A runner, its block size, and how many seeds it has the time for."""
    backend, size, seeds = request.param
    owner = open_backend(backend, BackendSettings(device="cpu"))
    weights = place(SPEC, RandomTensors(SPEC, tied=False, scale=0.4, spread=0, seed=5), owner)
    shape = CacheShape(len(SPEC.layers), BLOCKS * 32 // size, size, SPEC.kv_heads, SPEC.head_dim, "float16")
    owner.allocate_cache(shape)
    limits = Limits(MAX_TOKENS, MAX_SEQUENCES, MAX_SEQUENCES, shape.blocks)
    program = owner.capture(lambda ops, batch: decoder(ops, SPEC, weights, batch), limits)
    yield ModelRunner(owner, program, Traffic(1, 1), size), size, seeds
    owner.close()


def params_of(rng: random.Random) -> SamplingParams:
    if rng.random() < 0.4:
        return SamplingParams(temperature=0)
    return SamplingParams(
        temperature=rng.choice([0.5, 1.0]),
        top_k=rng.choice([0, 5]),
        top_p=rng.choice([1.0, 0.9]),
        repetition_penalty=rng.choice([1.0, 1.2]),
        frequency_penalty=rng.choice([0.0, 0.3]),
    )


def test_interleaved_requests_equal_the_same_requests_alone(
    machine_parts: tuple[ModelRunner, int, int],
) -> None:
    runner, size, seeds = machine_parts
    first = random.randrange(10**6)
    print("seeds", first, "to", first + seeds - 1)
    preemptions = hits = mixed = aborts = 0
    for seed in range(first, first + seeds):
        rng = random.Random(seed)
        machine = Machine(runner, size, rng, prefix_cache=seed % 5 != 0)
        common = [rng.randrange(SPEC.vocabulary) for _ in range(size * 2)]
        wanted: dict[int, tuple[list[int], SamplingParams, int]] = {}
        done: dict[int, list[int]] = {}
        live: dict[int, Sequence] = {}
        for number in range(1, 19):
            fork = rng.choice(list(live.values())) if live and rng.random() < 0.3 else None
            prompt = list(fork.tokens) if fork else common[: rng.randint(1, len(common))]
            prompt = prompt[:120] + [rng.randrange(SPEC.vocabulary) for _ in range(rng.choice([0, 0, 7, 60]))]
            params, length = params_of(rng), rng.choice([1, 2, 60, 70])  # long ones: else few preemptions
            wanted[number] = (prompt, params, length)
            live[number] = Sequence(number, prompt, SamplerState(params, number, prompt))
            machine.scheduler.add(live[number])
            if rng.random() < 0.15:
                victim = rng.choice(list(live))
                machine.scheduler.remove(live.pop(victim))
                aborts += 1
            for _ in range(rng.randint(0, 5) if number < 18 else 5000):
                if not live:
                    break
                for sequence, _ in machine.step():
                    if sequence.output_length == wanted[sequence.id][2]:
                        done[sequence.id] = list(sequence.tokens)
                        machine.scheduler.remove(live.pop(sequence.id))
        assert not live
        assert machine.pool.used == 0
        preemptions += machine.scheduler.preemptions
        hits += machine.scheduler.prefix_tokens_saved
        mixed += machine.mixed
        for number, tokens in done.items():
            prompt, params, length = wanted[number]
            alone = Machine(runner, size, rng, prefix_cache=False)
            sequence = Sequence(number, prompt, SamplerState(params, number, prompt))
            alone.scheduler.add(sequence)
            while sequence.output_length < length:
                alone.step()
            assert list(sequence.tokens) == tokens, f"seed {seed}, request {number}, {params}"
    assert preemptions > 0
    assert hits > 0
    assert mixed > 0
    assert aborts > 0
