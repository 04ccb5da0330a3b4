"""Any interleaving of requests on a real (tiny, random) model gives each the tokens it gets alone.

Random submits, forks, aborts, ends, chunk lengths, drafts and preemptions over a small pool; the block audit
after each step.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest

from engine.blocks import BlockPool
from engine.chunking import ChunkBudget
from engine.models.decoder import decoder
from engine.models.families import gpt_oss
from engine.models.placing import place
from engine.models.spec import ExpertsSpec, LayerSpec, ModelSpec
from engine.models.weights import Weights
from engine.roofline import Traffic
from engine.runner import ModelRunner
from engine.sampler import SamplerState
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.speculative.acceptance import accept
from engine.speculative.draft_model import ModelDrafter
from engine.speculative.drafter import Pass
from engine.speculative.speculation import Speculation
from engine.step_plan import StepPlan
from kernels.backends import open_backend
from kernels.cache_format import CacheShape
from kernels.interface import BackendSettings, Inputs, Operations, Routing, Value
from kernels.program import Limits
from random_weights import RandomTensors

pytestmark = pytest.mark.slow

MIXTURE = ExpertsSpec(count=5, hidden=32, routing=Routing(2))
SPEC = ModelSpec(
    architecture="gpt-oss",
    layers=(LayerSpec(), LayerSpec(window=40, experts=MIXTURE)),
    width=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    feed_forward=96,
    gate="clamped",
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
        self.mixed = self.copies = 0

    def step(
        self, guess: Callable[[Sequence], list[int]] | None = None, speculation: Speculation | None = None
    ) -> list[Sequence]:
        """The sequences that got tokens. guess: drafts for those in decode; speculation: makes them out of
        zeros once there is room.
        """
        for sequence in self.scheduler.running:
            if guess is not None and sequence.decoding:
                sequence.drafts = array("i", guess(sequence))
        plan = self.scheduler.plan()
        assert not plan.exhausted
        if not plan.runs:
            return []
        if speculation is not None:
            speculation.guess(plan)
        self.copies += len(plan.copies)
        decodes = sum(run.decoding and run.sequence.output_length > 0 for run in plan.runs)
        self.mixed += 0 < decodes < len(plan.runs)
        accepted = accept(plan, self.runner.launch(plan, logits=False).result().tokens)
        self.scheduler.commit(plan, accepted)
        self.pool.audit(self.scheduler.tables)
        return [run.sequence for run, tokens in zip(plan.runs, accepted, strict=True) if tokens]


@pytest.fixture(
    params=[
        ("reference", 16, "float16", 2),
        ("native", 16, "float16", 3),
        ("native", 32, "float16", 3),
        ("native", 16, "int8", 2),
    ]
)
def machine_parts(request: pytest.FixtureRequest) -> Iterator[tuple[list[ModelRunner], int, int]]:
    """Three runners with caches of their own, their block size, and how many seeds they have the time for."""
    backend, size, kv, seeds = request.param
    shape = CacheShape(SPEC.cached, BLOCKS * 32 // size, size, kv)
    limits = Limits(MAX_TOKENS, MAX_TOKENS, MAX_SEQUENCES, shape.blocks)
    forms = ("q4", "q8", "f32", "mxfp4")
    tensors = RandomTensors(SPEC, forms, family=gpt_oss.FAMILY, tied=False, scale=0.4, spread=0, seed=5)
    runners = []
    for _ in range(3):
        owner = open_backend(backend, BackendSettings(device="cpu"))
        weights = place(SPEC, tensors, owner)
        owner.allocate_cache(shape)
        program = owner.capture(partial(decoded, weights), limits)
        runners.append(ModelRunner(owner, program, Traffic(1, 1), size))
    yield runners, size, seeds
    for runner in runners:
        runner.close()


def decoded(weights: Weights, ops: Operations, batch: Inputs) -> Value:
    return decoder(ops, SPEC, weights, batch)


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
    machine_parts: tuple[list[ModelRunner], int, int],
) -> None:
    runners, size, seeds = machine_parts
    first = random.randrange(10**6)
    print("seeds from", first)
    counts: Counter[str] = Counter()
    wanted = {"preemptions", "hits", "mixed", "aborts", "accepted", "rejected"}
    # So few seeds may miss what seldom happens: they go on until all of it did.
    for seed in range(first, first + 10 * seeds):
        if seed >= first + seeds and wanted <= set(+counts):
            break
        interleave(runners, size, seed, counts)
    assert wanted <= set(+counts), counts


def interleave(runners: list[ModelRunner], size: int, seed: int, counts: Counter[str]) -> None:
    rng = random.Random(seed)
    machine = Machine(runners[0], size, rng, prefix_cache=seed % 5 != 0)
    common = [rng.randrange(SPEC.vocabulary) for _ in range(size * 2)]
    wanted: dict[int, tuple[list[int], SamplingParams, int]] = {}
    done: dict[int, list[int]] = {}
    live: dict[int, Sequence] = {}

    @cache
    def alone(number: int) -> list[int]:
        """Prompt and reply of a request by itself, without drafts."""
        prompt, params, length = wanted[number]
        quiet = Machine(runners[1], size, rng, prefix_cache=False)
        sequence = Sequence(number, prompt, SamplerState(params, number, prompt))
        quiet.scheduler.add(sequence)
        while sequence.output_length < length:
            quiet.step()
        return list(sequence.tokens)

    def guess(sequence: Sequence) -> list[int]:
        """Some of the next tokens of a reply, all but the last, mostly right."""
        following = alone(sequence.id)[len(sequence.tokens) : -1][: rng.choice([0, 1, 3, 9])]
        return [token if rng.random() < 0.8 else rng.randrange(SPEC.vocabulary) for token in following]

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
            counts["aborts"] += 1
        for _ in range(rng.randint(0, 5) if number < 18 else 5000):
            if not live:
                break
            for sequence in machine.step(guess):
                if sequence.output_length == wanted[sequence.id][2]:
                    done[sequence.id] = list(sequence.tokens)
                    machine.scheduler.remove(live.pop(sequence.id))
                    counts["accepted"] += sequence.accepted
                    counts["rejected"] += sequence.drafted - sequence.accepted
    assert not live
    assert machine.pool.used == 0
    counts["preemptions"] += machine.scheduler.preemptions
    counts["hits"] += machine.scheduler.prefix_tokens_saved
    counts["mixed"] += machine.mixed
    for number, tokens in done.items():
        assert alone(number) == tokens, f"seed {seed}, request {number}, {wanted[number][1]}"


class Unsure(ModelDrafter):
    """Some of its drafts are wrong on purpose. right: how many of the drafts of each sequence are right."""

    def __init__(self, runner: ModelRunner, size: int, rng: random.Random) -> None:
        super().__init__(
            "itself",
            runner,
            vocabulary=SPEC.vocabulary,
            known=SPEC.vocabulary,
            context_length=SPEC.context_length,
            rows=MAX_TOKENS,
            block_size=size,
        )
        self.right: dict[int, int] = {}
        self._rng = rng

    def guess(self, plan: StepPlan) -> list[Pass]:
        passes = super().guess(plan)
        self.right = {run.sequence.id: 0 for run in plan.runs}
        for sequence in (run.sequence for run in plan.runs if run.decoding and run.count > 1):
            self.right[sequence.id] = len(sequence.drafts)
            if sequence.drafts and self._rng.random() < 0.3:
                place = self.right[sequence.id] = self._rng.randrange(len(sequence.drafts))
                sequence.drafts[place] = (sequence.drafts[place] + 1) % SPEC.vocabulary
        return passes


def test_a_model_that_guesses_for_itself_is_always_right(
    machine_parts: tuple[list[ModelRunner], int, int],
) -> None:
    """Whatever it computed, shared, skipped, copied or lost: with a wrong key it would guess wrong."""
    runners, size, _ = machine_parts
    first = random.randrange(10**6)
    print("seeds from", first)
    counts: Counter[str] = Counter()
    wanted = {"preemptions", "hits", "copies", "accepted", "rejected", "caught up"}
    for seed in range(first, first + 10):
        guess_for_itself(runners, size, seed, counts)
        if wanted <= set(+counts):
            break
    assert wanted <= set(+counts), counts


def guess_for_itself(runners: list[ModelRunner], size: int, seed: int, counts: Counter[str]) -> None:
    rng = random.Random(seed)
    machine = Machine(runners[0], size, rng)
    drafter = Unsure(runners[2], size, rng)
    speculation = Speculation(drafter, 9, MAX_SEQUENCES)
    common = [rng.randrange(SPEC.vocabulary) for _ in range(size * 2)]
    live: dict[int, tuple[Sequence, int]] = {}
    prompts: list[list[int]] = [common]

    def zeros(sequence: Sequence) -> list[int]:
        room = live[sequence.id][1] - sequence.output_length - 1
        return [0] * max(0, min(room, rng.choice([0, 0, 1, 3, 9])))

    for number in range(1, 25):
        prompt = rng.choice(prompts)[: rng.choice([size, 2 * size, 120])]
        prompt = prompt + [rng.randrange(SPEC.vocabulary) for _ in range(rng.choice([0, 0, 7]))]
        live[number] = (
            Sequence(number, prompt, SamplerState(params_of(rng), number, prompt)),
            rng.choice([2, 40, 60]),
        )
        machine.scheduler.add(live[number][0])
        quiet = rng.random() < 0.3  # nobody guesses for a while
        for _ in range(5000 if number == 24 else rng.randint(9, 20) if quiet else rng.randint(0, 6)):
            if not live:
                break
            before = {id: (each.table.drafted, each.accepted) for id, (each, _) in live.items()}
            for sequence in machine.step(None if quiet and number < 24 else zeros, speculation):
                drafted, accepted = before[sequence.id]
                right = drafter.right[sequence.id]
                assert sequence.accepted == accepted + right, f"seed {seed}, request {sequence.id}"
                counts["caught up"] += sequence.table.drafted > drafted + 16
                if sequence.output_length == live[sequence.id][1]:
                    prompts.append(list(sequence.tokens))
                    counts["accepted"] += sequence.accepted
                    counts["rejected"] += sequence.drafted - sequence.accepted
                    machine.scheduler.remove(sequence)
                    del live[sequence.id]
    assert not live
    counts["preemptions"] += machine.scheduler.preemptions
    counts["hits"] += machine.scheduler.prefix_tokens_saved
    counts["copies"] += machine.copies
