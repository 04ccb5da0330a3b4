"""Where a device computes beside the engine's thread, a step's news is told while the next one runs: nothing
of any reply changes by it, and nothing stays behind of the row too many that a stop string costs.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beside import Beside, Flying
from drafting import END, ENDS, SETTINGS, A, B, TinyModel, every_way_to_end, replies
from engine import AsyncEngine, EngineConfig, Finished, SamplingParams, TextDelta
from engine.bandwidth import PeakBandwidth
from engine.blocks import BlockPool
from engine.chunking import ChunkBudget
from engine.commands import Prepared, Submit
from engine.grammar import masks
from engine.model import load_model
from engine.outbox import Outbox
from engine.prompt import source_of
from engine.request import Request
from engine.sampler import SamplerState
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.service import Service
from engine.step_builder import StepBuilder
from engine.step_plan import StepPlan
from engine.testing import ScriptedModel


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps blocks and queues are as they have to be."""
    whole = Service.step

    def step(service: Service) -> None:
        whole(service)
        service.audit()

    monkeypatch.setattr(Service, "step", step)


@pytest.mark.parametrize("draft", ["none", "ngram"])
async def test_every_way_to_end_is_the_same(tiny_tokenizer: Path, audited: None, draft: str) -> None:
    config, requests = every_way_to_end(tiny_tokenizer)
    config = replace(config, draft_model=draft, draft_tokens=3)
    want, *_ = await replies(config, requests)
    assert [reply[2] for reply in want] == ENDS
    assert isinstance(config.model, ScriptedModel)
    config.model.beside = True
    found, _, state = await replies(config, requests)
    assert found == want
    assert state.preemptions > 0, "the pool is too small for them all"
    assert state.blocks_used == 0


@pytest.fixture
def kinds_ahead(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Runs of steps that were planned ahead, and computed, by what is special of them."""
    found: Counter[str] = Counter()
    holds = Scheduler.holds

    def counted(scheduler: Scheduler, plan: StepPlan) -> bool:
        held = holds(scheduler, plan)
        for run in plan.runs if held else ():
            sequence = run.sequence
            found["prompt"] += not run.decoding and not sequence.score
            found["scored"] += sequence.score
            found["grammar"] += bool(run.samples) and sequence.constraint is not None
            found["sampler"] += bool(run.samples) and not sequence.sampler.plain
            found["while somebody waits"] += bool(scheduler.waiting)
        found["dropped"] += not held
        return held

    monkeypatch.setattr(Scheduler, "holds", counted)
    return found


@pytest.mark.parametrize("draft", ["none", "ngram"])
@pytest.mark.parametrize(("backend", "blocks"), [("native", 20), ("native", 90), ("reference", 90)])
async def test_replies_of_a_model_are_the_same(
    tiny_tokenizer: Path, audited: None, kinds_ahead: Counter[str], backend: str, blocks: int, draft: str
) -> None:
    """Also in a pool that is too small, with stop strings, grammars and log-probabilities."""
    seed = random.randrange(10**6)
    print(f"{seed=}")
    rng = random.Random(seed)
    prompts = [[rng.randrange(256) for _ in range(rng.randrange(1, 55))] for _ in range(12)]
    grammars: list[dict[str, Any]] = [
        {"regex": "[a-f]{3,30}!?"},
        {"regex": "(abc){2,9}d", "stop": ("ca",)},
        {"regex": "[a-zA-Z]{50}", "repetition_penalty": 1.2},
        {"grammar": 'start: "<" /[a-z]{2,9}/ ("," /[0-9]{2,9}/)* ">"', "logprobs": 1},
    ]
    requests = [
        (prompt, SamplingParams(**{"max_tokens": rng.choice([14, 40]), "seed": n, **settings}))
        for n, (prompt, settings) in enumerate(zip(prompts, SETTINGS + grammars, strict=True))
    ]
    rng.shuffle(requests)
    model = TinyModel(backend, tiny_tokenizer, 100)
    config = EngineConfig(
        model=model,
        block_size=16,
        kv_blocks=blocks,
        max_sequences=rng.choice([3, 4]),
        draft_model=draft,
        draft_tokens=2,
        prefill_chunk=7,
    )
    want, *_ = await replies(config, requests)
    assert not kinds_ahead, "what computes at once is asked for one step after the other"
    found, _, state = await replies(replace(config, model=Beside(model)), requests)
    assert found == want
    assert {reply[2] for reply in found} >= {"stop", "length"}
    assert state.blocks_used == 0
    print(dict(kinds_ahead))
    assert kinds_ahead["sampler"] > 0
    assert kinds_ahead["dropped"] > 0
    if blocks == 90:  # else somebody waits for blocks most of the time
        assert min(kinds_ahead[kind] for kind in ("prompt", "grammar", "while somebody waits")) > 0


async def test_replies_of_the_default_model_are_the_same(default_model: Path, audited: None) -> None:
    """The library computes while this thread makes text of the step before."""
    requests: list[tuple[list[int], SamplingParams]] = [
        (list(range(500 + 9 * n, 509 + 12 * n)), SamplingParams(seed=n, max_tokens=12, stop=stop))
        for n, stop in enumerate([("e", "zq"), ("zq",)] * 4)
    ]
    config = EngineConfig(model=default_model, context_length=256, kv_blocks=24, draft_model="none")
    want, *_ = await replies(config, requests)
    found, *_ = await replies(replace(config, model=Beside(default_model)), requests)
    assert found == want
    assert {reply[2] for reply in found} == {"stop", "length"}


async def test_between_two_steps_only_what_decides_the_next_one_is_done(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text is made, readers are woken, the next step is laid out and masks are written while a step runs:
    whatever the settings, beside a prompt in pieces, and while somebody waits for a place.
    """
    events: list[str] = []

    def note(owner: Any, name: str) -> None:
        whole = getattr(owner, name)

        def noted(*arguments: Any, **more: Any) -> Any:
            events.append(name)
            return whole(*arguments, **more)

        monkeypatch.setattr(owner, name, noted)

    for owner, name in (
        (Request, "tell"),
        (Scheduler, "plan"),
        (StepBuilder, "lay_out"),
        (StepBuilder, "finish"),
        (Outbox, "send"),
        (masks, "write_masks"),
    ):
        note(owner, name)
    tokens = 40
    config = EngineConfig(
        model=Beside(TinyModel("native", tiny_tokenizer, 100), events.append),
        block_size=16,
        kv_blocks=60,
        draft_model="none",
        max_sequences=6,
        prefill_chunk=7,
    )
    kinds: list[dict[str, Any]] = [
        {},
        {"repetition_penalty": 1.2, "frequency_penalty": 0.3},
        {"logit_bias": {9: 3.0}, "min_tokens": 5},
        {"regex": "[a-zA-Z]{60}"},
        {"regex": "([a-z]|[0-9]){60}", "presence_penalty": 0.5},
    ]
    requests = [
        ([5 + n] * (n + 1), SamplingParams(temperature=n / 4, max_tokens=tokens, **kind))
        for n, kind in enumerate(kinds)
    ]
    long = 55
    requests.append((list(range(long)), SamplingParams(max_tokens=tokens, ignore_eos=True)))
    requests.append(([3], SamplingParams(max_tokens=1)))  # there is no place for it, as long as all six run
    _, finals, state = await replies(config, requests)
    assert [len(final.token_ids) for final in finals] == [tokens] * 6 + [1]
    under_way, between = False, Counter[str]()
    for event in events:
        if event in ("launch", "result"):
            under_way = event == "launch"
        elif not under_way:
            between[event] += 1
    assert events.count("launch") == state.steps >= tokens
    assert events.count("tell") > 6 * tokens
    assert events.count("write_masks") == events.count("masked") >= tokens
    assert not between["write_masks"]
    # Requests that begin and end: there is no step then that anything could be done beside, or another one
    # comes than was planned.
    assert between["tell"] <= 7
    assert between["plan"] <= 10
    assert between["lay_out"] <= between["plan"] + 3, "seen tokens are given room in pieces"
    assert events.count("finish") > tokens + long // 7 - 12, "what was laid out was computed"
    assert between["send"] <= 12


async def test_a_row_too_many_after_a_stop_string_is_not_told_and_not_found(
    tiny_tokenizer: Path, audited: None
) -> None:
    stop = "".join(chr(token + 0x21) for token in (B, B + 1))
    scripts = [[A] * 30, [A, A, B, B + 1, A, A, A]]
    model = ScriptedModel(scripts, tiny_tokenizer, [END], beside=True)
    events: list[Any] = []
    async with AsyncEngine(EngineConfig(model=model, block_size=16, draft_model="none")) as engine:
        other = engine.generate([9], SamplingParams(temperature=0, max_tokens=30))
        async with engine.generate([5], SamplingParams(temperature=0, stop=(stop,))) as stream:
            events += [event async for event in stream]
        await other.result()
        await engine.audit()
        assert engine.snapshot().blocks_used == 0
    final = events[-1]
    assert isinstance(final, Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1
    told = [token for event in events if isinstance(event, TextDelta) for token in event.token_ids]
    assert final.reason == "stop"
    assert final.stop_match == stop
    assert final.usage.completion_tokens == len(final.token_ids) == len(told)


async def test_aborts_and_new_requests_at_any_moment_leave_no_trace(
    tiny_tokenizer: Path, audited: None
) -> None:
    seed = random.randrange(10**6)
    print(f"{seed=}")
    rng = random.Random(seed)
    model = ScriptedModel([[A, B] * 60] * 200, tiny_tokenizer, [END], beside=True, step_seconds=0.0005)
    config = EngineConfig(model=model, block_size=16, kv_blocks=20, context_length=120, max_sequences=6)
    async with AsyncEngine(config) as engine:

        async def one(number: int) -> Finished:
            await asyncio.sleep(rng.random() * 0.1)
            stream = engine.generate([number % 200] * rng.randrange(1, 60), SamplingParams(temperature=0))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.05)
                stream.abort()
            return await stream.result()

        async with asyncio.timeout(60):
            finals = await asyncio.gather(*map(one, range(40)))
        await engine.audit()
        state = engine.snapshot()
    assert {final.reason for final in finals} <= {"aborted", "context", "stop", "capacity"}
    assert (state.running, state.waiting, state.blocks_used) == (0, 0, 0)
    for final in finals:
        assert final.token_ids == tuple([A, B] * 60)[: len(final.token_ids)]


async def test_steps_that_turn_out_to_have_no_room_change_no_reply(
    tiny_tokenizer: Path, audited: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known when they are waited for: replies have ended meanwhile, and the next step is planned."""
    seed = random.randrange(10**6)
    print(f"{seed=}")
    rng = random.Random(seed)
    prompts = [[rng.randrange(256) for _ in range(rng.randrange(1, 60))] for _ in range(24)]
    requests = [(p, SamplingParams(**{"max_tokens": 40, **rng.choice(SETTINGS)})) for p in prompts]
    model = TinyModel("native", tiny_tokenizer, 100)
    config = EngineConfig(
        model=model, block_size=16, kv_blocks=60, max_sequences=6, draft_model="none", prefill_chunk=7
    )
    want, *_ = await replies(config, requests)
    whole, lost = Flying.result, Counter[bool]()

    def result(flying: Flying) -> Any:
        output, fails = whole(flying), rng.random() < 0.1
        lost[fails] += 1
        if fails:
            raise MemoryError("the card has no room")
        return output

    monkeypatch.setattr(Flying, "result", result)
    found, _, state = await replies(replace(config, model=Beside(model), kv_blocks=14), requests)
    assert lost[True] > 0
    for reply, own in zip(found, want, strict=True):
        if reply[2] in ("error", "capacity"):  # alone, and no room for one token
            assert reply[1] == own[1][: len(reply[1])]
        else:
            assert reply == own
    assert state.blocks_used == 0


async def test_a_device_that_fails_while_news_is_told_ends_everyone_once(tiny_tokenizer: Path) -> None:
    model = ScriptedModel([[A] * 500] * 3, tiny_tokenizer, [END], beside=True, step_seconds=0.001)
    async with AsyncEngine(EngineConfig(model=model, block_size=16)) as engine:
        streams = [engine.generate([5 + n]) for n in range(3)]
        for stream in streams:
            await anext(stream)
        model.fails = RuntimeError("the device is gone")
        async with asyncio.timeout(30):
            finals = [await stream.result() for stream in streams]
    for final in finals:
        assert final.error is not None
        assert final.error.code == "engine_failed"
        assert final.token_ids == (A,) * len(final.token_ids)
        assert len(final.text) == len(final.token_ids)


def test_what_is_planned_ahead_is_what_would_be_planned_later() -> None:
    """Whatever there is, as long as no reply ends: prompts in pieces, texts that are scored."""
    seed = random.randrange(10**6)
    print(f"{seed=}")
    rng = random.Random(seed)
    pool = BlockPool(40, 16)
    scheduler = Scheduler(pool, ChunkBudget(6, 64), max_batch_tokens=64, max_sequences=4)
    held: Counter[str] = Counter()
    unclear = 0
    for number in range(600):
        if rng.random() < 0.08:
            prompt = [rng.randrange(256) for _ in range(rng.randrange(1, 90))]
            params = SamplingParams(repetition_penalty=rng.choice([1, 1.2]))
            sampler = SamplerState(params, number, prompt)
            scheduler.add(Sequence(number, prompt, sampler, score=rng.random() < 0.4))
        scheduler.focused = number - 5
        plan = scheduler.plan()
        ahead = scheduler.ahead(plan)
        pool.audit(scheduler.tables)
        commit(scheduler, plan, rng)
        for sequence in [*scheduler.running]:
            done = sequence.score and not sequence.remaining
            if done or len(sequence.tokens) > 110 or rng.random() < 0.02:
                scheduler.remove(sequence)
        for sequence in scheduler.running:
            if sequence.decoding and rng.random() < 0.01:  # a token that was no choice
                sequence.append(0)
        pool.audit(scheduler.tables)
        if ahead is None or not scheduler.holds(ahead):
            unclear += 1
            continue
        later = scheduler.plan()
        assert later.runs == ahead.runs
        assert not later.copies
        for run in later.runs:
            assert len(run.sequence.table.blocks) == pool.blocks_for(run.end)
            held["scored" if run.sequence.score else "reply" if run.decoding else "prompt"] += 1
        commit(scheduler, later, rng)
    print(f"{held} were clear, {unclear} not")
    assert min(held[kind] for kind in ("scored", "prompt", "reply")) > 5
    assert unclear > 5


def commit(scheduler: Scheduler, plan: StepPlan, rng: random.Random) -> None:
    """Any tokens come of a step."""
    drawn = (0 if run.sequence.score else run.samples for run in plan.runs)
    scheduler.commit(plan, [[rng.randrange(256)] * count for count in drawn])


def test_a_reply_that_has_only_to_be_told_waits_for_nothing(tiny_tokenizer: Path) -> None:
    """So it does not stand in the way of a request."""
    model = ScriptedModel([[A], [A] * 9, [A]], tiny_tokenizer, [END], beside=True)
    config = EngineConfig(model=model, block_size=16, max_sequences=2, max_waiting=0, draft_model="none")
    told: list[tuple[int, Any]] = []
    service = Service(
        config,
        load_model(config),
        lambda number, event: told.append((number, event)),
        lambda service: None,
        PeakBandwidth(),
    )

    def submit(number: int) -> bool:
        taken = service.submit(Submit(number, source_of([5], False), SamplingParams(), 1, 0.0))
        service.prepared(Prepared(number, [5], None))
        return taken

    assert submit(1)
    assert submit(2)
    assert not submit(3), "there is no place to wait in"
    while service.requests[1].done is None:
        service.step()
    assert 1 in service.requests, "it is told while the next step runs"
    assert submit(4)
    assert not submit(5)
    while service.busy:
        service.step()
    ends = {number: event.reason for number, event in told if isinstance(event, Finished)}
    assert ends == {1: "stop", 2: "stop", 3: "error", 4: "stop", 5: "error"}
    assert not service.requests
