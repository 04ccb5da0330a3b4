"""The scheduler against a model of the cache: random interleavings, the audit after each step, exact replies.

The model stores in each slot which tokens stand there and before; a step reads the whole past of each row
through its block table, so a wrong block, a missing copy or a block shared too early is an error, and the
next token is a hash of all tokens before it, so that replies can be compared with those of the same request
alone.
"""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass
from functools import cache

import pytest

from engine.blocks import BlockPool
from engine.chunking import ChunkBudget
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.speculative.acceptance import accept
from engine.step_plan import StepPlan


class NoSampler:
    def observe(self, token: int) -> None:
        pass


class RandomChunks(ChunkBudget):
    """Any chunk size at any step."""

    def __init__(self, rng: random.Random, largest: int) -> None:
        super().__init__(None, largest)
        self._rng = rng

    def limit(self) -> int:
        return self._rng.randint(1, self._largest)


def next_token(tokens: list[int]) -> int:
    return hash(tuple(tokens)) % 50


class CacheModel:
    """Slots that remember the tokens up to theirs."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.slots: dict[int, tuple[int, ...]] = {}

    def run(self, plan: StepPlan) -> list[int]:
        """What is drawn at each sample row."""
        size = self.block_size
        for source, target in plan.copies:
            for offset in range(size):
                self.slots[target * size + offset] = self.slots.get(source * size + offset, ())
        for run in plan.runs:
            assert run.start == run.sequence.computed
            tokens = seen(run.sequence)
            assert list(run.tokens) == tokens[run.start : run.end]
            for position in range(run.start, run.end):
                self.slots[self.slot(run.sequence, position)] = tuple(tokens[: position + 1])
        for run in plan.runs:
            tokens = seen(run.sequence)
            for position in range(run.end):
                assert self.slots[self.slot(run.sequence, position)] == tuple(tokens[: position + 1]), (
                    "another conversation's keys are read"
                )
        return [next_token(seen(sequence)[:position]) for _, sequence, position in plan.samples()]

    def slot(self, sequence: Sequence, position: int) -> int:
        return sequence.table.blocks[position // self.block_size] * self.block_size + (
            position % self.block_size
        )


def seen(sequence: Sequence) -> list[int]:
    return [*sequence.tokens, *sequence.drafts]


def take_step(scheduler: Scheduler, model: CacheModel, plan: StepPlan) -> list[Sequence]:
    """The sequences that got tokens."""
    accepted = accept(plan, model.run(plan))
    scheduler.commit(plan, accepted)
    scheduler.pool.audit(scheduler.tables)
    for sequence in scheduler.running:
        assert len(sequence.table.blocks) == scheduler.pool.blocks_for(sequence.computed)
        assert not sequence.drafts
    return [run.sequence for run, tokens in zip(plan.runs, accepted, strict=True) if tokens]


def alone(prompt: list[int], length: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(length):
        tokens.append(next_token(tokens))
    return tokens


@dataclass
class Counts:
    preemptions: int = 0
    hits: int = 0
    mixed: int = 0
    copies: int = 0
    aborted: int = 0
    finished: int = 0
    accepted: int = 0
    rejected: int = 0


def simulate(seed: int, block_size: int, counts: Counts) -> None:
    rng = random.Random(seed)
    blocks = rng.randint(6, 14)
    max_sequences = rng.randint(1, 8)
    max_tokens = rng.choice([max_sequences, 16, 64, 200])
    max_tokens = max(max_tokens, max_sequences)
    pool = BlockPool(blocks, block_size, prefix_cache=rng.random() < 0.9)
    scheduler = Scheduler(
        pool, RandomChunks(rng, max_tokens), max_batch_tokens=max_tokens, max_sequences=max_sequences
    )
    model = CacheModel(block_size)
    capacity = blocks * block_size
    wanted: dict[int, tuple[list[int], int]] = {}
    live: dict[int, Sequence] = {}
    prompts = [[rng.randrange(50) for _ in range(rng.randint(1, capacity // 2))] for _ in range(3)]
    whole_blocks = rng.randint(1, blocks // 2) * block_size
    prompts += [[rng.randrange(50) for _ in range(whole_blocks)] for _ in range(2)]
    reply = cache(lambda number: alone(*wanted[number]))
    drafting = rng.choice([0.0, 0.3, 1.0])
    submitted, steps = 0, 0
    total = rng.randint(5, 25)
    while submitted < total or live:
        steps += 1
        assert steps < 5000, f"seed {seed}: no end"
        while submitted < total and (rng.random() < 0.3 or not live):
            submitted += 1
            kind = rng.random()
            if kind < 0.4:
                prompt = list(rng.choice(prompts))
            elif kind < 0.7 and live:
                prompt = list(rng.choice(list(live.values())).tokens)  # a fork of a running conversation
            else:
                prompt = rng.choice(prompts)[: rng.randint(1, 40)] + [rng.randrange(50)] * rng.randint(0, 20)
            prompt = prompt[: capacity - 1]
            length = rng.randint(1, max(1, min(4 * block_size, capacity - len(prompt))))
            sequence = Sequence(submitted, prompt, NoSampler())  # type: ignore[arg-type]
            wanted[submitted] = (prompt, length)
            live[submitted] = sequence
            scheduler.add(sequence)
        if live and rng.random() < 0.04:
            victim = rng.choice(list(live.values()))
            scheduler.remove(victim)
            del live[victim.id]
            counts.aborted += 1
        if rng.random() < 0.1 and live:
            scheduler.focused = rng.choice(list(live))
        for sequence in scheduler.running:
            if sequence.decoding and rng.random() < drafting:
                right = reply(sequence.id)[len(sequence.tokens) : -1]
                guessed = [token if rng.random() < 0.8 else 50 for token in right[: rng.randint(0, 40)]]
                sequence.drafts = array("i", guessed)
        plan = scheduler.plan()
        for sequence in plan.exhausted:
            assert len(scheduler.running) <= 1, "others ran that could have made room"
            assert pool.blocks_for(len(sequence.tokens)) > blocks, "there was room"
            scheduler.remove(sequence)
            del live[sequence.id]
        assert plan.tokens <= max_tokens
        if not plan.runs:
            assert plan.exhausted or not live, f"seed {seed}: nothing runs, {len(live)} wait"
            continue
        decodes = sum(run.decoding and run.start >= run.sequence.prompt_length for run in plan.runs)
        counts.mixed += 0 < decodes < len(plan.runs)
        counts.copies += len(plan.copies)
        for sequence in take_step(scheduler, model, plan):
            if sequence.output_length == wanted[sequence.id][1]:
                assert list(sequence.tokens) == reply(sequence.id), f"seed {seed}"
                scheduler.remove(sequence)
                del live[sequence.id]
                counts.finished += 1
                counts.accepted += sequence.accepted
                counts.rejected += sequence.drafted - sequence.accepted
    assert pool.used == 0
    counts.preemptions += scheduler.preemptions
    counts.hits += scheduler.prefix_tokens_saved


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [16, 32])
def test_random_interleavings_give_each_request_its_own_tokens(block_size: int) -> None:
    first = random.randrange(10**9)
    print(f"seeds {first} to {first + 59}")
    counts = Counts()
    for seed in range(first, first + 60):
        simulate(seed, block_size, counts)
    assert min(counts.preemptions, counts.hits, counts.mixed, counts.copies, counts.aborted) > 10, counts
    assert min(counts.finished, counts.accepted, counts.rejected) > 250, counts


def drive(scheduler: Scheduler, model: CacheModel, lengths: dict[int, int], steps: int) -> list[list[int]]:
    """Run steps; returns the ids that got a token in each."""
    history = []
    for _ in range(steps):
        plan = scheduler.plan()
        if not plan.runs:
            break
        sampled = take_step(scheduler, model, plan)
        for sequence in sampled:
            if sequence.output_length == lengths[sequence.id]:
                scheduler.remove(sequence)
        history.append([sequence.id for sequence in sampled])
    return history


def make(
    blocks: int = 400, size: int = 16, chunk: int = 32, batch: int = 512, sequences: int = 16
) -> Scheduler:
    return Scheduler(
        BlockPool(blocks, size), ChunkBudget(chunk, batch), max_batch_tokens=batch, max_sequences=sequences
    )


def tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(50) for _ in range(count)]


@pytest.mark.slow
def test_B037_a_long_prompt_stops_nobody_and_endless_arrivals_starve_nobody() -> None:
    rng = random.Random(1)
    scheduler, model = make(), CacheModel(16)
    lengths = {1: 100}
    scheduler.add(Sequence(1, tokens(rng, 20), NoSampler()))  # type: ignore[arg-type]
    drive(scheduler, model, lengths, 10)
    first_tokens: dict[int, int] = {}
    step, number = 0, 1
    while 1 in [s.id for s in scheduler.running]:
        if step % 10 == 0:
            number += 1
            lengths[number] = 5
            scheduler.add(Sequence(number, tokens(rng, 2000), NoSampler()))  # type: ignore[arg-type]
        (got,) = drive(scheduler, model, lengths, 1)
        assert 1 in got, "the running conversation gets a token in every step"
        for other in got:
            first_tokens.setdefault(other, step)
        step += 1
    assert 2 in first_tokens, "the first long prompt was answered meanwhile"


def test_a_short_prompt_overtakes_a_long_prefill_but_does_not_stop_it() -> None:
    rng = random.Random(2)
    scheduler, model = make(batch=64), CacheModel(16)
    lengths = {1: 1, 2: 1}
    scheduler.add(Sequence(1, tokens(rng, 3000), NoSampler()))  # type: ignore[arg-type]
    drive(scheduler, model, lengths, 2)
    scheduler.add(Sequence(2, tokens(rng, 30), NoSampler()))  # type: ignore[arg-type]
    before = scheduler.running[0].computed
    history = drive(scheduler, model, lengths, 1)
    assert history == [[2]]
    assert scheduler.running[0].computed > before


def test_equal_prompts_submitted_together_are_computed_once() -> None:
    rng = random.Random(3)
    scheduler, model = make(batch=64), CacheModel(16)
    prompt = tokens(rng, 200)
    lengths = dict.fromkeys(range(1, 9), 3)
    for number in lengths:
        scheduler.add(Sequence(number, prompt, NoSampler()))  # type: ignore[arg-type]
    computed = 0
    while scheduler.running or scheduler.waiting:
        plan = scheduler.plan()
        computed += plan.tokens
        for sequence in take_step(scheduler, model, plan):
            if sequence.output_length == 3:
                scheduler.remove(sequence)
    assert computed <= 200 + 8 * 16 + 8 * 3, "the prompt once, its last block and the replies for each"


def test_the_newest_is_preempted_and_the_last_runner_ends_with_capacity() -> None:
    rng = random.Random(4)
    scheduler, model = make(blocks=6, batch=96), CacheModel(16)
    for number in (1, 2):
        scheduler.add(Sequence(number, tokens(rng, 30), NoSampler()))  # type: ignore[arg-type]
    exhausted: list[int] = []
    for _ in range(200):
        plan = scheduler.plan()
        for sequence in plan.exhausted:
            exhausted.append(sequence.id)
            assert len(sequence.tokens) == 6 * 16 + 1
            scheduler.remove(sequence)
        if not plan.runs and not scheduler.waiting:
            break
        take_step(scheduler, model, plan)
    assert scheduler.preemptions >= 1
    assert exhausted == [1, 2], "the older one first; the other went on when it had the pool alone"
    assert not scheduler.running
    assert not scheduler.waiting
    assert scheduler.pool.used == 0
