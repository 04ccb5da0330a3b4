"""Drafts change how many steps a reply takes, and nothing of the reply."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafters import RULES, DraftedModel, ScriptedDrafter
from drafting import (
    END,
    ENDS,
    SETTINGS,
    A,
    B,
    TinyModel,
    audit_steps,
    check,
    drafted,
    every_way_to_end,
    replies,
    simulate_time,
)
from engine import AsyncEngine, EngineConfig, Finished, SamplingParams, TextDelta
from engine.blocks import BlockPool
from engine.chunking import ChunkBudget
from engine.sampler import SamplerState
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.speculative.acceptance import accept
from engine.step_plan import Run, StepPlan
from engine.testing import ScriptedModel


@pytest.mark.parametrize(
    ("drafts", "sampled", "taken"),
    [
        ([], [7], [7]),
        ([7], [7, 8], [7, 8]),
        ([7], [6, 8], [6]),  # what comes behind a wrong draft was drawn after the wrong token
        ([7, 8, 9], [7, 8, 9, 1], [7, 8, 9, 1]),
        ([7, 8, 9], [7, 5, 9, 1], [7, 5]),
        ([7, 8, 9], [5, 8, 9, 1], [5]),
        ([7, 8, 9], [7, 8], [7, 8]),  # the step had no place for the last two
        ([7, END, 9], [7, END, 9, 1], [7, END]),
        ([END], [END, END], [END]),
        ([], [-1], []),
        ([7, 8], [7, -1, 1], [7]),  # bad logits: the next step meets them again, with no draft before them
        ([7, 8], [-1, 8, 1], []),
    ],
)
def test_B039_B043_a_draft_is_accepted_while_it_is_what_was_sampled(
    drafts: list[int], sampled: list[int], taken: list[int]
) -> None:
    sequence = sequence_of(3, drafts)
    sequence.ends = {END}
    other = sequence_of(2, [])
    count = len(sampled)
    plan = StepPlan([Run(other, 0, 1, 0), Run(sequence, 2, count, count), Run(other, 1, 1, 1)])
    assert accept(plan, [*sampled, 4]) == [[], taken, [4]]


def sequence_of(length: int, drafts: list[int], params: SamplingParams = SamplingParams()) -> Sequence:  # noqa: B008
    sequence = Sequence(1, range(length), SamplerState(params, 1, range(length)))
    sequence.computed = length - 1
    sequence.drafts = array("i", drafts)
    return sequence


def test_nothing_is_sampled_of_a_text_that_is_scored() -> None:
    scored = Sequence(1, [1, 2, 3], SamplerState(SamplingParams(), 1), score=True)
    assert accept(StepPlan([Run(scored, 0, 3, 3)]), [5, 6, 7]) == [[]]


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.3},
        {"frequency_penalty": 0.4},
        {"presence_penalty": 0.4, "logit_bias": {3: 1.0}},
        {"min_tokens": 3},
        {"min_tokens": 2, "repetition_penalty": 0.9},
    ],
)
def test_B045_a_row_counts_the_drafts_before_it(settings: dict[str, Any]) -> None:
    params, prompt, drafts = SamplingParams(**settings), [1, 2, 3, 2], [2, 9, 9, 4]
    sequence = Sequence(1, prompt, SamplerState(params, 5, prompt, [END]))
    sequence.append(8)
    sequence.computed, sequence.drafts = 4, array("i", drafts)
    before = contents(sequence.sampler)
    samples = StepPlan([Run(sequence, 4, 5, 5)]).samples()
    for row, sample in enumerate(samples):
        plain = SamplerState(params, 5, prompt, [END])
        for token in (8, *drafts[:row]):
            plain.observe(token)
        assert contents(sample.sampler) == contents(plain)
        assert (sample.row, sample.position) == (row, 5 + row)
    assert contents(sequence.sampler) == before
    assert samples[0].sampler is sequence.sampler


def contents(state: SamplerState) -> Any:
    ids, counts = state.seen
    return state.params, state.seed, list(ids), list(counts), state.bias


def test_where_history_makes_no_difference_all_rows_share_a_state() -> None:
    sequence = sequence_of(4, [1, 2, 3], SamplingParams(temperature=0.5, top_p=0.9))
    samples = StepPlan([Run(sequence, 3, 4, 4)]).samples()
    assert all(sample.sampler is sequence.sampler for sample in samples)


def scheduler_of(blocks: int = 40, batch: int = 64, chunk: int = 32) -> Scheduler:
    pool = BlockPool(blocks, 16)
    return Scheduler(pool, ChunkBudget(chunk, batch), max_batch_tokens=batch, max_sequences=8)


def step(scheduler: Scheduler, drafts: dict[int, list[int]]) -> StepPlan:
    """A step in which every row samples token 5."""
    for sequence in scheduler.running:
        sequence.drafts = array("i", drafts.get(sequence.id, []))
    plan = scheduler.plan()
    rows = len(plan.samples())
    scheduler.commit(plan, accept(plan, [5] * rows))
    scheduler.pool.audit(scheduler.tables)
    return plan


def admitted(scheduler: Scheduler, *lengths: int) -> list[Sequence]:
    """Sequences with prompts of these lengths, in decode."""
    sequences = [
        Sequence(number, [number] * length, SamplerState(SamplingParams(), number))
        for number, length in enumerate(lengths, 1)
    ]
    for sequence in sequences:
        scheduler.add(sequence)
    for _ in range(20):
        if all(sequence.decoding and sequence.output_length for sequence in sequences):
            return sequences
        step(scheduler, {})
    raise AssertionError("there is no room for them all")


def test_a_sequence_with_drafts_is_in_decode_and_prompts_keep_their_share() -> None:
    scheduler = scheduler_of(chunk=20)
    first, second = admitted(scheduler, 10, 10)
    scheduler.add(Sequence(3, [3] * 100, SamplerState(SamplingParams(), 3)))
    plan = step(scheduler, {first.id: [5, 5, 9], second.id: [5]})
    assert [(run.count, run.samples, run.decoding) for run in plan.runs] == [
        (4, 4, True),
        (2, 2, True),
        (20, 0, False),
    ]
    assert plan.prefill_tokens == 20
    assert (first.accepted, first.drafted, second.accepted, second.drafted) == (2, 3, 1, 1)
    assert (first.output_length, second.output_length) == (4, 3)
    plan = step(scheduler, {first.id: [9] * 8})
    assert [run.count for run in plan.runs] == [9, 1, 20]
    assert (first.output_length, first.decoding) == (5, True)


def test_drafts_take_no_more_rows_than_are_left() -> None:
    scheduler = scheduler_of(batch=12)
    first, second = admitted(scheduler, 4, 4)
    plan = step(scheduler, {first.id: [5] * 7, second.id: [5] * 7})
    assert [run.count for run in plan.runs] == [8, 4]
    assert (first.output_length, second.output_length) == (9, 5)


def test_drafts_take_no_blocks_from_anybody_and_give_theirs_back() -> None:
    scheduler = scheduler_of(blocks=3)
    first, second = admitted(scheduler, 14, 14)  # a block each, and one is left
    plan = step(scheduler, {first.id: [9] * 6, second.id: [9] * 6})
    assert [run.count for run in plan.runs] == [7, 1]
    assert [len(sequence.table.blocks) for sequence in (first, second)] == [1, 1]
    assert scheduler.pool.free == 1
    assert scheduler.preemptions == 0


def test_a_block_of_rejected_drafts_is_never_found_again() -> None:
    scheduler = scheduler_of()
    (first,) = admitted(scheduler, 15)  # its next token fills the block
    step(scheduler, {first.id: [5] * 16 + [9] * 20})
    assert len(first.tokens) == 16 + 17
    assert scheduler.pool.match(array("i", [1] * 15 + [5] * 17))[0] == list(first.table.blocks[:2])
    assert len(scheduler.pool.match(array("i", [1] * 15 + [5] * 17 + [9] * 20))[0]) == 2


def test_keys_of_rejected_drafts_do_not_count_as_those_of_a_draft_model() -> None:
    scheduler = scheduler_of()
    (first,) = admitted(scheduler, 15)
    first.table.drafted = 20  # 15 tokens, its last one, and drafts before the last of them
    step(scheduler, {first.id: [5, 5, 9, 9, 9]})
    assert (first.table.drafted, first.computed) == (18, 18)
    first.drafts, first.table.drafted = array("i", [5, 5]), 21
    scheduler.withdraw(scheduler.plan(), 4)  # there is no memory for the step
    assert (first.table.drafted, first.computed, list(first.drafts)) == (18, 18, [])


def test_a_preempted_sequence_forgets_its_drafts_and_computes_again_as_a_prefill() -> None:
    scheduler = scheduler_of(blocks=4)
    first, second = admitted(scheduler, 10, 22)
    for _ in range(30):
        plan = step(scheduler, {first.id: [9], second.id: [5, 9]})
        if scheduler.preemptions:
            break
    assert scheduler.preemptions == 1
    assert [run.sequence for run in plan.runs] == [first]
    assert list(second.drafts) == []
    assert not second.decoding
    scheduler.remove(first)
    plan = step(scheduler, {})
    assert plan.prefill_tokens == plan.tokens > 1
    assert second.decoding


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> None:
    audit_steps(monkeypatch)


@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize("rule", RULES)
async def test_every_way_to_end_is_the_same_with_drafts(
    tiny_tokenizer: Path, audited: None, rule: str, window: int
) -> None:
    plain, requests = every_way_to_end(tiny_tokenizer)
    model = plain.model
    expected, _, before = await replies(plain, requests)
    assert before.preemptions > 0
    assert [reply[2] for reply in expected] == ENDS
    assert isinstance(model, ScriptedModel)
    drafter = ScriptedDrafter(dict(enumerate(model.outputs, 1)), rule, window, too_long=window == 3)
    with_drafts = replace(plain, model=DraftedModel(model, drafter), draft_tokens=window)
    found, finals, after = await replies(with_drafts, requests)
    assert found == expected
    check(rule, finals)
    assert after.steps < before.steps or rule == "wrong"
    assert after.preemptions > 0 or rule != "wrong"


@pytest.mark.parametrize("window", [*range(1, 9), "auto"])
async def test_every_way_to_end_is_the_same_with_drafts_from_the_text(
    tiny_tokenizer: Path, audited: None, window: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_time(monkeypatch)
    plain, requests = every_way_to_end(tiny_tokenizer, 0.002)
    expected, _, before = await replies(plain, requests)
    assert [reply[2] for reply in expected] == ENDS
    found, finals, after = await replies(replace(plain, draft_model="ngram", draft_tokens=window), requests)
    assert found == expected
    assert min(drafted(finals)) > 0
    assert after.steps < before.steps
    assert (after.draft_tokens, after.accepted_tokens) == (
        sum(final.usage.draft_tokens for final in finals),
        sum(final.usage.accepted_tokens for final in finals),
    )


async def test_N042_what_is_accepted_of_a_reply_does_not_depend_on_its_neighbours(
    tiny_tokenizer: Path, audited: None
) -> None:
    rng = random.Random(2)
    scripts = [[rng.choice([A, B, B + 1]) for _ in range(60)] for _ in range(8)]
    config = EngineConfig(
        model=ScriptedModel(scripts, tiny_tokenizer, [END]),
        draft_model="ngram",
        draft_tokens=3,
        max_sequences=8,
    )
    requests = [([7 + number] * 9, SamplingParams()) for number in range(8)]
    _, together, _ = await replies(config, requests)
    alone = []
    for number, request in enumerate(requests):
        model = ScriptedModel(scripts[number:], tiny_tokenizer, [END])
        alone += (await replies(replace(config, model=model), [request]))[1]
    assert [final.usage for final in together] == [final.usage for final in alone]
    assert min(drafted(together)) > 0


@pytest.mark.parametrize("rule", RULES)
async def test_a_pool_that_ends_inside_a_draft_ends_the_only_runner_at_the_same_token(
    tiny_tokenizer: Path, audited: None, rule: str
) -> None:
    model = ScriptedModel([[A] * 200], tiny_tokenizer, [END])
    plain = EngineConfig(model=model, block_size=16, kv_blocks=3)
    drafter = ScriptedDrafter({1: [A] * 200}, rule, 5)
    finals = []
    for config in (plain, replace(plain, model=DraftedModel(model, drafter), draft_tokens=5)):
        async with AsyncEngine(config) as engine:
            finals.append(await engine.generate([5] * 10).result())
    assert [(final.reason, len(final.token_ids)) for final in finals] == [("capacity", 39)] * 2
    check(rule, finals[1:])


async def test_aborts_while_drafts_are_checked_leave_no_trace(tiny_tokenizer: Path, audited: None) -> None:
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    scripts = [[rng.randrange(60, 200) for _ in range(60)] for _ in range(40)]
    model = ScriptedModel(scripts, tiny_tokenizer, [END], step_seconds=0.0005)
    drafter = ScriptedDrafter(dict(enumerate(scripts, 1)), "mixed", 4)
    config = EngineConfig(model=DraftedModel(model, drafter), block_size=16, kv_blocks=40, draft_tokens=4)
    reasons: Counter[str] = Counter()
    async with AsyncEngine(config) as engine:

        async def one(stop_after: int | None) -> Finished:
            stream = engine.generate([5] * rng.randrange(1, 40))
            async for event in stream:
                if isinstance(event, TextDelta) and stop_after is not None:
                    stop_after -= len(event.token_ids)
                    if stop_after <= 0:
                        stream.abort()
                        stop_after = None
            final = await stream.result()
            script = (*scripts[stream.id - 1], END)
            assert final.token_ids == script[: len(final.token_ids)]
            return final

        waits = [rng.choice([None, 1, 7, 20]) for _ in scripts]
        finals = await asyncio.gather(*(one(wait) for wait in waits))
        reasons.update(final.reason for final in finals)
        assert min(drafted(finals)) > 0
        assert engine.snapshot().blocks_used == 0
    assert set(reasons) == {"stop", "aborted"}, reasons


@pytest.mark.parametrize(
    ("backend", "count", "context", "blocks", "rules"),
    [("native", 8, 70, 14, list(RULES)), ("reference", 3, 40, 6, ["mixed"])],
)
async def test_replies_of_a_model_are_the_same_with_drafts(
    tiny_tokenizer: Path,
    audited: None,
    backend: Any,
    count: int,
    context: int,
    blocks: int,
    rules: list[str],
) -> None:
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    prompts = [[rng.randrange(256) for _ in range(rng.randrange(1, 16))] for _ in SETTINGS]
    requests = [
        (prompt, SamplingParams(**settings)) for prompt, settings in zip(prompts, SETTINGS, strict=True)
    ][:count]
    model = TinyModel(backend, tiny_tokenizer, context)
    plain = EngineConfig(model=model, max_sequences=8, max_batch_tokens=96, block_size=16, kv_blocks=blocks)
    expected, finals, before = await replies(plain, requests)
    assert before.preemptions > 0
    known = {number: final.token_ids for number, final in enumerate(finals, 1)}
    for rule, window in zip(rules, (8, 1, 4, 5), strict=False):
        drafter = ScriptedDrafter(known, rule, window)
        with_drafts = replace(plain, model=DraftedModel(model, drafter), draft_tokens=window)
        found, finals, after = await replies(with_drafts, requests)
        assert found == expected, rule
        check(rule, finals)
        assert rule == "wrong" or after.steps < before.steps


@pytest.mark.parametrize(
    ("backend", "count", "windows"), [("native", 8, [1, 2, 3, 4, 5, 6, 7, 8, "auto"]), ("reference", 3, [4])]
)
async def test_replies_of_a_model_are_the_same_with_drafts_from_the_text(
    tiny_tokenizer: Path, audited: None, backend: Any, count: int, windows: list[Any]
) -> None:
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    # Five tokens are made likely, so that pairs of them come again and again.
    liked = dict.fromkeys((65, 66, 67, 72, 73), 9.0)
    requests = []
    for settings in SETTINGS[:count]:
        bias = {**liked, **settings.get("logit_bias", {})}
        params = SamplingParams(**{"max_tokens": 45, **settings, "logit_bias": bias})
        requests.append(([rng.choice([65, 66, 67]) for _ in range(rng.randrange(3, 16))], params))
    model = TinyModel(backend, tiny_tokenizer, 70)
    plain = EngineConfig(model=model, max_sequences=8, max_batch_tokens=96, block_size=16, kv_blocks=14)
    expected, _, before = await replies(plain, requests)
    for window in windows:
        found, finals, after = await replies(
            replace(plain, draft_model="ngram", draft_tokens=window), requests
        )
        assert found == expected, window
        if window != "auto":  # which may find, on a machine that is busy, that none pay
            assert min(drafted(finals)) > 0
            assert after.steps < before.steps


async def test_replies_of_the_default_model_are_the_same_with_drafts(
    default_model: Path, audited: None
) -> None:
    prompts = [list(range(400 * number, 400 * number + 9)) for number in range(1, 5)]
    params = [SamplingParams(**settings, max_tokens=20, ignore_eos=True) for settings in SETTINGS[:3]]
    requests = list(zip(prompts, params, strict=False))
    plain = EngineConfig(model=default_model, backend="native", context_length=64, draft_model="none")
    expected, finals, _ = await replies(plain, requests)
    known = {number: final.token_ids for number, final in enumerate(finals, 1)}
    drafter = ScriptedDrafter(known, "mixed", 4)
    with_drafts = replace(plain, model=DraftedModel(default_model, drafter), draft_tokens=4)
    found, finals, _ = await replies(with_drafts, requests)
    assert found == expected
    check("mixed", finals)
