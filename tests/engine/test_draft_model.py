"""A draft model changes how many steps a reply takes, and nothing of the reply."""

from __future__ import annotations

import asyncio
import itertools
import random
from array import array
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafters import RULES
from drafting import (
    END,
    ENDS,
    SETTINGS,
    Request,
    TinyModel,
    audit_steps,
    check,
    drafted,
    every_way_to_end,
    replies,
    simulate_time,
)
from engine import AsyncEngine, EngineConfig, EngineError, Finished, SamplingParams, TextDelta
from engine.sampler import SamplerState
from engine.sequence import Sequence
from engine.speculative.draft_model import ModelDrafter
from engine.step_plan import Run, StepPlan
from engine.testing import ScriptedModel
from engine.tokenization.vocabulary import Kind, Vocabulary
from kernels.native.library import kernels


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> None:
    audit_steps(monkeypatch)


def altered(model: ScriptedModel, rule: str, **kind: Any) -> ScriptedModel:
    """A script that is right where a rule of `RULES` says so."""
    outputs = [
        [token if RULES[rule](number, place) else token ^ 1 for place, token in enumerate(output)]
        for number, output in enumerate(model.outputs, 1)
    ]
    return ScriptedModel(outputs, model.tokenizer, model.eos, **kind)


@pytest.mark.parametrize(
    ("rule", "window"),
    [*zip(list(RULES) * 2, range(1, 9), strict=True), *zip(RULES, (7, 5, 8, 6), strict=True)],
)
async def test_every_way_to_end_is_the_same_with_a_draft_model(
    tiny_tokenizer: Path, audited: None, rule: str, window: int
) -> None:
    plain, requests = every_way_to_end(tiny_tokenizer)
    assert isinstance(plain.model, ScriptedModel)
    expected, _, before = await replies(plain, requests)
    assert [reply[2] for reply in expected] == ENDS
    draft = altered(plain.model, rule)
    found, finals, after = await replies(replace(plain, draft_model=draft, draft_tokens=window), requests)
    assert found == expected
    check(rule, finals)
    assert after.steps < before.steps or rule == "wrong"
    assert sum(after.drafts_kept) == drafted(finals)[0]
    for final in finals:
        usage = final.usage
        assert (sum(usage.drafts_tried), sum(usage.drafts_kept)) == (
            usage.draft_tokens,
            usage.accepted_tokens,
        )


async def test_a_draft_model_that_is_right_but_slow_is_left_alone(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_time(monkeypatch)
    script = [[60 + place % 100 for place in range(120)]]
    model = ScriptedModel(script, tiny_tokenizer, [END], step_seconds=0.001)
    draft = ScriptedModel(script, tiny_tokenizer, [END], step_seconds=0.02)
    config = EngineConfig(model=model, draft_model=draft)
    found, finals, _ = await replies(config, [([5, 6], SamplingParams())])
    assert found[0][1] == (*script[0], END)
    assert finals[0].usage.draft_tokens <= 40


def mixed(rng: random.Random, count: int) -> list[Request]:
    """Requests with all kinds of settings."""
    return [
        (
            [rng.randrange(256) for _ in range(rng.randrange(1, 16))],
            SamplingParams(**{"max_tokens": 45, **SETTINGS[number % len(SETTINGS)]}),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("backend", "count", "blocks", "windows"),
    [("native", 16, 30, [1, 2, 3, 4, 5, 6, 7, 8, "auto"]), ("native", 1, 5, [3]), ("reference", 3, 6, [4])],
)
async def test_replies_of_a_model_are_the_same_with_a_draft_model(
    tiny_tokenizer: Path, audited: None, backend: str, count: int, blocks: int, windows: list[Any]
) -> None:
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    requests = mixed(rng, count)
    model = TinyModel(backend, tiny_tokenizer, 70)
    plain = EngineConfig(
        model=model,
        max_sequences=16,
        max_batch_tokens=192,
        block_size=16,
        kv_blocks=blocks,
        draft_model="none",
    )
    expected, _, before = await replies(plain, requests)
    half = TinyModel(backend, tiny_tokenizer, 70, layers=1)
    totals = [0, 0]
    for window in windows:
        found, finals, _ = await replies(replace(plain, draft_model=half, draft_tokens=window), requests)
        assert found == expected, window
        totals = [total + more for total, more in zip(totals, drafted(finals), strict=True)]
    assert min(totals) > 0
    assert before.preemptions > 0 or count == 1


async def test_the_model_itself_as_draft_is_always_right(tiny_tokenizer: Path, audited: None) -> None:
    model = TinyModel("native", tiny_tokenizer, 70)
    requests = [
        (prompt, replace(params, stop=(), stop_token_ids=())) for prompt, params in mixed(random.Random(4), 8)
    ]
    plain = EngineConfig(model=model, max_sequences=8, max_batch_tokens=96, block_size=16, kv_blocks=10)
    expected, _, before = await replies(plain, requests)
    for window in (2, 7):
        found, finals, after = await replies(replace(plain, draft_model=model, draft_tokens=window), requests)
        assert found == expected
        accepted, rejected = drafted(finals)
        assert accepted > 0 == rejected
        assert after.steps < before.steps
    assert before.preemptions > 0


def tight(tokenizer: Path) -> EngineConfig:
    """A small model without drafts, and a cache that eight conversations do not fit into."""
    return EngineConfig(
        model=TinyModel("native", tokenizer, 70),
        max_sequences=8,
        max_batch_tokens=96,
        block_size=16,
        kv_blocks=14,
        draft_model="none",
    )


@pytest.mark.parametrize("isa", [isa for isa in ("amx", "avx512", "avx2", "portable") if kernels(isa)])
async def test_every_instruction_set_gives_the_same_with_a_draft_model(
    tiny_tokenizer: Path, audited: None, isa: str
) -> None:
    requests = mixed(random.Random(7), 8)
    plain = tight(tiny_tokenizer)
    expected, _, _ = await replies(plain, requests)
    other, half = (TinyModel("native", tiny_tokenizer, 70, isa=isa, layers=layers) for layers in (2, 1))
    found, finals, _ = await replies(replace(plain, model=other, draft_model=half, draft_tokens=4), requests)
    assert found == expected
    check("mixed", finals)


@pytest.mark.parametrize(
    "form",
    [
        {"context_length": 30},  # a shorter context than the model's
        {"context_length": 70, "vocabulary": 322},  # further rows that fill the table up
        {"context_length": 70, "vocabulary": 200},  # fewer rows: texts with other ids get none
    ],
)
async def test_B041_a_draft_model_of_another_size_changes_nothing(
    tiny_tokenizer: Path, audited: None, form: Mapping[str, Any]
) -> None:
    requests = mixed(random.Random(11), 8)
    plain = tight(tiny_tokenizer)
    expected, _, _ = await replies(plain, requests)
    draft = TinyModel("native", tiny_tokenizer, **form)
    found, finals, _ = await replies(replace(plain, draft_model=draft, draft_tokens=3), requests)
    assert found == expected
    assert sum(drafted(finals)) > 0


async def test_N042_what_a_draft_model_gets_right_does_not_depend_on_the_neighbours(
    tiny_tokenizer: Path, audited: None
) -> None:
    requests = [(prompt, replace(params, seed=9)) for prompt, params in mixed(random.Random(3), 8)]
    config = EngineConfig(
        model=TinyModel("native", tiny_tokenizer, 70),
        max_sequences=8,
        max_batch_tokens=96,
        block_size=16,
        kv_blocks=40,
        draft_model=TinyModel("native", tiny_tokenizer, 70, layers=1),
        draft_tokens=3,
    )
    _, together, _ = await replies(config, requests)
    alone = [(await replies(config, [request]))[1][0] for request in requests]
    assert [final.usage for final in together] == [final.usage for final in alone]
    assert min(drafted(together)) > 0


@pytest.mark.parametrize("rule", RULES)
async def test_a_pool_that_ends_inside_a_draft_ends_the_only_runner_at_the_same_token(
    tiny_tokenizer: Path, audited: None, rule: str
) -> None:
    model = ScriptedModel([[65] * 200], tiny_tokenizer, [END])
    config = EngineConfig(model=model, block_size=16, kv_blocks=3, draft_model=altered(model, rule))
    async with AsyncEngine(replace(config, draft_tokens=5)) as engine:
        final = await engine.generate([5] * 10).result()
    assert (final.reason, len(final.token_ids)) == ("capacity", 39)
    check(rule, [final])


async def test_aborts_while_a_model_guesses_leave_no_trace(tiny_tokenizer: Path, audited: None) -> None:
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    model = TinyModel("native", tiny_tokenizer, 70)
    config = EngineConfig(
        model=model,
        max_sequences=8,
        max_batch_tokens=96,
        block_size=16,
        kv_blocks=14,
        draft_model=TinyModel("native", tiny_tokenizer, 70, layers=1),
        draft_tokens=4,
    )
    requests = mixed(rng, 24)
    expected, _, _ = await replies(replace(config, draft_model="none"), requests)
    async with AsyncEngine(config) as engine:

        async def one(request: Request, stop_after: int | None) -> Finished:
            stream = engine.generate(*request)
            async for event in stream:
                if isinstance(event, TextDelta) and stop_after is not None:
                    stop_after -= len(event.token_ids)
                    if stop_after <= 0:
                        stream.abort()
                        stop_after = None
            return await stream.result()

        waits = [rng.choice([None, 1, 7, 20]) for _ in requests]
        finals = await asyncio.gather(*map(one, requests, waits))
        assert engine.snapshot().blocks_used == 0
    assert "aborted" in {final.reason for final in finals}
    assert min(drafted(finals)) > 0
    for final, whole in zip(finals, expected, strict=True):
        assert final.token_ids == whole[1][: len(final.token_ids)]


def vocabulary(*texts: str, unused: int = 0) -> Vocabulary:
    kinds = [Kind.NORMAL] * len(texts) + [Kind.UNUSED] * unused
    return Vocabulary([*texts, *(f"[PAD{i}]" for i in range(unused))], bytes(kinds), byte_level=True)


@pytest.mark.parametrize(
    ("ours", "theirs", "first"),
    [
        (vocabulary("a", "b", "c"), vocabulary("a", "b", "c"), None),
        (vocabulary("a", "b", "c"), vocabulary("a", "c", "b"), 1),
        (vocabulary("a", "b", "c"), vocabulary("x", "y"), 0),
        (vocabulary("a", "b"), vocabulary("a", "b", unused=64), None),
        (vocabulary("a", "b", unused=64), vocabulary("a", "b"), None),
        (vocabulary("a", "b", unused=1), vocabulary("a", "b", "c"), None),
        (vocabulary("a", "b"), vocabulary("a", "b", "c"), None),
        (vocabulary("a", "b", "c"), vocabulary("a", "b"), 2),
    ],
)
def test_B041_the_first_token_that_differs_is_found(
    ours: Vocabulary, theirs: Vocabulary, first: int | None
) -> None:
    assert ours.first_difference(theirs) == first


@pytest.mark.slow
async def test_B041_a_draft_model_with_two_tokens_swapped_is_refused(
    default_model: Path, tmp_path: Path
) -> None:
    def stored(text: str) -> bytes:
        return len(text.encode()).to_bytes(8, "little") + text.encode()

    the, that = stored("Ġhouse"), stored("Ġwater")
    data = default_model.read_bytes()
    first, second = data.index(the), data.index(that)
    swapped = bytearray(data)
    swapped[first : first + len(the)], swapped[second : second + len(that)] = that, the
    file = tmp_path / "swapped.gguf"
    file.write_bytes(swapped)
    with pytest.raises(
        EngineError, match=r"swapped can't guess for .*token \d+ is ' (house|water)' in"
    ) as raised:
        async with AsyncEngine(EngineConfig(model=default_model, draft_model=file, context_length=64)):
            pass
    assert raised.value.code == "model_invalid"
    config = EngineConfig(model=default_model, paired_draft=file, context_length=64)
    async with AsyncEngine(config) as engine:  # nobody has asked for it by name
        assert any("is not used: swapped can't guess" in note for note in engine.info.notes)
        assert engine.snapshot().draft == "ngram"


@pytest.mark.slow
async def test_a_draft_model_counts_in_the_memory(default_model: Path) -> None:
    from engine import plan_memory

    config = EngineConfig(model=default_model, context_length=256, kv_memory=1 << 27, draft_model="none")
    both = replace(config, draft_model=default_model)
    async with AsyncEngine(config) as plain, AsyncEngine(both) as engine:
        alone, snapshot = plain.snapshot(), engine.snapshot()
        assert any("no smaller than" in note for note in engine.info.notes)
        assert snapshot.draft == engine.info.name
    assert snapshot.draft_memory_bytes == alone.memory_bytes
    assert snapshot.memory_bytes == 2 * (alone.memory_bytes or 0)
    plans = plan_memory(config), plan_memory(both)
    assert plans[1].blocks == snapshot.blocks_total
    assert plans[0].blocks == alone.blocks_total
    assert plans[1].kv_bytes_per_token == 2 * plans[0].kv_bytes_per_token
    assert plans[1].kv_bytes <= 1 << 27
    assert plans[1].nbytes - plans[1].kv_bytes == 2 * plans[0].weight_bytes


async def test_a_step_that_does_not_fit_while_a_model_guesses_is_done_again(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = mixed(random.Random(5), 6)
    plain = EngineConfig(
        model=TinyModel("native", tiny_tokenizer, 70),
        max_sequences=8,
        max_batch_tokens=96,
        block_size=16,
        kv_blocks=30,
        draft_model="none",
    )
    expected, _, _ = await replies(plain, requests)
    whole, calls = ModelDrafter.guess, 0

    def guess(drafter: ModelDrafter, plan: StepPlan) -> Any:
        nonlocal calls
        calls += 1
        passes = whole(drafter, plan)
        if calls % 7 == 3:
            raise MemoryError("none for the draft model")
        return passes

    monkeypatch.setattr(ModelDrafter, "guess", guess)
    half = TinyModel("native", tiny_tokenizer, 70, layers=1)
    found, finals, _ = await replies(replace(plain, draft_model=half, draft_tokens=4), requests)
    assert found == expected
    assert min(drafted(finals)) > 0


async def test_where_only_the_draft_model_has_no_memory_the_models_steps_stay_as_they_are(
    tiny_tokenizer: Path, audited: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    beginning = [rng.randrange(256) for _ in range(48)]
    settings = SamplingParams(max_tokens=25, ignore_eos=True, seed=3)
    requests: list[Request] = [(beginning, settings)] * 3  # the last of their blocks is copied
    requests += mixed(rng, 5)
    half = TinyModel("native", tiny_tokenizer, 70, layers=1)
    plain = EngineConfig(
        model=TinyModel("native", tiny_tokenizer, 70),
        max_sequences=8,
        max_batch_tokens=96,
        block_size=16,
        kv_blocks=60,
        draft_model="none",
    )
    expected, _, _ = await replies(plain, requests)
    failed = {"copy": 0, "pass": 0}
    fails = itertools.cycle((True, False))
    run, copy = ModelDrafter._compute, ModelDrafter._copy

    def compute(drafter: ModelDrafter, runs: list[Run]) -> Any:
        if sum(each.count for each in runs) > 5:
            failed["pass"] += 1
            raise MemoryError("none for a pass")
        return run(drafter, runs)

    def copied(drafter: ModelDrafter, plan: StepPlan) -> None:
        with monkeypatch.context() as patch:
            if plan.copies and next(fails):
                failed["copy"] += 1
                patch.setattr(drafter, "_runner", NoCopies())
            copy(drafter, plan)

    monkeypatch.setattr(ModelDrafter, "_compute", compute)
    monkeypatch.setattr(ModelDrafter, "_copy", copied)
    monkeypatch.setattr("engine.service.Service._no_room", None)  # which would be called
    for _ in range(4):
        found, finals, _ = await replies(replace(plain, draft_model=half, draft_tokens=2), requests)
        assert found == expected
        assert min(drafted(finals)) > 0
        if failed["copy"]:
            break
    assert failed["pass"] > 3
    assert failed["copy"] > 0


class NoCopies:
    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        raise MemoryError("none for a copy")


@pytest.mark.parametrize("window", [3, "auto"])
async def test_a_draft_model_keeps_to_what_a_reply_has_to_keep_to(
    tiny_tokenizer: Path, audited: None, window: Any
) -> None:
    config = EngineConfig(
        model=TinyModel("native", tiny_tokenizer, 70), block_size=16, kv_blocks=20, draft_model="none"
    )
    params = SamplingParams(regex="[a-f]{20}", temperature=0.8, seed=3)
    requests = [([5, 6, 7], params), ([9], SamplingParams(temperature=0, max_tokens=30))]
    expected, _, _ = await replies(config, requests)
    model = replace(config, draft_model=config.model, draft_tokens=window)  # type: ignore[arg-type]
    found, finals, _ = await replies(model, requests)
    assert found == expected
    assert len(found[0][0]) == 20
    if window == 3:
        assert finals[0].usage.accepted_tokens > 0


class Recorder:
    """A model whose cache is never touched; it always draws the same token."""

    weight_bytes = 0

    def __init__(self, token: int) -> None:
        self.token = token
        self.calls: list[Any] = []
        self.traffic = self

    def step_bytes(self, plan: StepPlan) -> int:
        return 1

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        self.calls.append(copies)

    def launch(self, plan: StepPlan, *, logits: bool) -> Any:
        from engine.runner import StepResult

        self.calls.append([(run.start, list(run.tokens), run.samples) for run in plan.runs])
        return StepResult([self.token] * len(plan.samples()))


def test_a_draft_model_reads_what_it_lacks_and_copies_what_is_copied() -> None:
    recorder = Recorder(7)
    drafter = ModelDrafter(
        "d",
        recorder,
        vocabulary=8,
        known=9,
        context_length=99,
        rows=8,
        block_size=16,  # type: ignore[arg-type]
    )
    long, short, off = (
        Sequence(i, [i] * n, SamplerState(SamplingParams(), 1)) for i, n in ((1, 20), (2, 5), (3, 4))
    )
    for number, each in enumerate((long, short, off)):
        each.table.blocks = array("i", [2 * number, 2 * number + 1])
        each.computed = len(each.tokens) - 1
        each.drafts = array("i", [0, 0])
    runs = [Run(long, 19, 3, 3), Run(short, 4, 3, 3), Run(off, 3, 1, 1)]
    passes = drafter.guess(StepPlan(runs, copies=[(0, 9)]))
    # Eight rows a pass: the short text is read whole and guessed for, the long one begun.
    assert recorder.calls == [
        [(0, 9)],
        [(0, [2] * 5, 1), (0, [1] * 3, 0)],
        [(5, [7], 1)],
    ]
    assert [each.rows for each in passes] == [8, 1]
    assert (list(long.drafts), list(short.drafts)) == ([], [7, 7])
    assert (long.table.drafted, short.table.drafted) == (3, 6)
    for nothing in (-1, 8):  # bad logits, and an id that the other model does not have
        recorder.token, short.drafts = nothing, array("i", [0, 0])
        drafter.guess(StepPlan([Run(short, 4, 3, 3)]))
        assert list(short.drafts) == []
