"""The default model through the whole engine: anchors of docs/cases.md, exact in any batch."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from anchors import COUNT_IDS, COUNT_TEXT, FACES, FACES_IDS
from engine import AsyncEngine, EngineConfig, Finished, Message, SamplingParams, TextDelta, as_dict
from standing import record_snapshots, standing

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = [Message("user", "Count from 1 to 10.")]
GREEDY = SamplingParams(temperature=0, max_tokens=51)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(default_model: Path) -> AsyncIterator[AsyncEngine]:
    """One engine with small blocks for the whole module."""
    config = EngineConfig(model=default_model, block_size=16, context_length=4096, max_sequences=32)
    async with AsyncEngine(config) as engine:
        assert engine.snapshot().exact
        yield engine


async def run(engine: AsyncEngine, prompt: object, params: SamplingParams) -> Finished:
    final = await engine.generate(prompt, params).result()  # type: ignore[arg-type]
    assert final.error is None, final.error
    return final


async def test_B013_prompt_ids_hold_one_start_token_each_turn(engine: AsyncEngine) -> None:
    assert await engine.tokenize(COUNT) == COUNT_IDS


async def test_B015_B089_the_files_template_and_row_order_give_the_anchor(engine: AsyncEngine) -> None:
    final = await run(engine, COUNT, GREEDY)
    assert final.text == COUNT_TEXT
    assert final.token_ids[:10] == (33, 30, 216, 33, 198, 34, 30, 216, 34, 198)
    assert (final.usage.prompt_tokens, final.usage.completion_tokens, final.reason) == (39, 51, "length")


@pytest.mark.slow
async def test_B015_a_file_without_template_says_so(default_model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bare.gguf"
    data = bytearray(default_model.read_bytes())
    key = b"tokenizer.chat_template"
    data[data.index(key) : data.index(key) + len(key)] = b"tokenizer.chat_nothing_"
    copy.write_bytes(data)
    async with AsyncEngine(EngineConfig(model=copy, kv_blocks=8)) as engine:
        assert not engine.info.has_chat_template
        ids = await engine.tokenize(COUNT)
        # ChatML, the documented default of a vocabulary with its tokens; it adds no system turn.
        assert ids == COUNT_IDS[21:]


@pytest.mark.parametrize("streamed", [True, False])
async def test_B001_characters_of_several_tokens_stay_whole(engine: AsyncEngine, streamed: bool) -> None:
    stream = engine.generate(FACES, SamplingParams(temperature=0, max_tokens=24))
    pieces = [event.text async for event in stream if isinstance(event, TextDelta)] if streamed else []
    final = await stream.result()
    assert final.usage.prompt_tokens == 24
    assert final.token_ids == tuple(FACES_IDS)
    assert final.text == FACES
    if streamed:
        assert "".join(pieces) == FACES
        assert not any("�" in piece for piece in pieces)


async def test_B001_a_cut_character_is_the_same_streamed_and_whole(engine: AsyncEngine) -> None:
    texts = []
    for streamed in (True, False):
        stream = engine.generate(FACES, SamplingParams(temperature=0, max_tokens=4))
        pieces = [event.text async for event in stream if isinstance(event, TextDelta)] if streamed else []
        final = await stream.result()
        texts.append("".join(pieces) if streamed else final.text)
    assert texts[0] == texts[1]
    assert texts[0].startswith("🫠")
    assert texts[0].count("�") <= 1


async def test_B007_no_part_of_a_stop_string_is_sent(engine: AsyncEngine) -> None:
    stream = engine.generate(COUNT, SamplingParams(temperature=0, max_tokens=51, stop=("5. 5\n6",)))
    pieces = [event.text async for event in stream if isinstance(event, TextDelta)]
    final = await stream.result()
    assert "".join(pieces) == final.text == "1. 1\n2. 2\n3. 3\n4. 4\n"
    assert not any("5" in piece for piece in pieces)
    assert (final.reason, final.stop_match) == ("stop", "5. 5\n6")


@pytest.mark.parametrize(("limit", "text"), [(1, "1"), (2, "1."), (3, "1. "), (4, "1. 1"), (5, "1. 1\n")])
async def test_B029_small_token_limits_hold(engine: AsyncEngine, limit: int, text: str) -> None:
    final = await run(engine, COUNT, SamplingParams(temperature=0, max_tokens=limit))
    assert (final.text, final.usage.completion_tokens, final.reason) == (text, limit, "length")


@pytest.mark.slow
async def test_B031_every_request_gets_its_own_text_in_any_batch(engine: AsyncEngine) -> None:
    prompts = [COUNT, [Message("user", "Hi")], [Message("user", "Hi!")], FACES]
    params = [GREEDY, GREEDY, GREEDY, SamplingParams(temperature=0, max_tokens=24)]
    alone = [(await run(engine, prompt, p)).token_ids for prompt, p in zip(prompts, params, strict=True)]
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    for round in range(4):
        streams = {}
        for index in rng.sample(range(4), 4):
            streams[index] = engine.generate(prompts[index], params[index])  # type: ignore[arg-type]
            if round:
                await asyncio.sleep(rng.random() * 0.2)
        for index, stream in streams.items():
            assert (await stream.result()).token_ids == alone[index]


async def test_B035_prompts_that_end_on_a_block_border_hit_the_cache(engine: AsyncEngine) -> None:
    for text, length in (("Hi!", 32), ("Hello!", 32), ("Hi", 31), ("Count from 1 to 10.", 39)):
        params = SamplingParams(temperature=0, max_tokens=8)
        first = await run(engine, [Message("user", text)], params)
        second = await run(engine, [Message("user", text)], params)
        assert first.usage.prompt_tokens == length
        assert second.token_ids == first.token_ids
        assert second.usage.cached_tokens == {32: 31, 31: 16, 39: 32}[length]


async def test_seeded_replies_do_not_depend_on_the_batch(engine: AsyncEngine) -> None:
    params = [
        SamplingParams(temperature=0.9, top_p=0.9, seed=seed, max_tokens=24, repetition_penalty=1.1)
        for seed in range(6)
    ]
    alone = [(await run(engine, COUNT, p)).token_ids for p in params]
    together = [engine.generate(COUNT, p) for p in params]
    assert [(await stream.result()).token_ids for stream in together] == alone
    assert len(set(alone)) > 1, "seeds matter"


@pytest.mark.parametrize("temperature", [0, 1e-6, 1e-38])
async def test_B053_temperatures_near_zero_are_greedy(engine: AsyncEngine, temperature: float) -> None:
    final = await run(engine, COUNT, SamplingParams(temperature=temperature, max_tokens=51, seed=1))
    assert final.text == COUNT_TEXT


async def test_B053_a_huge_temperature_finishes(engine: AsyncEngine) -> None:
    final = await run(engine, COUNT, SamplingParams(temperature=1e9, max_tokens=8, seed=1))
    assert final.usage.completion_tokens <= 8


async def test_B055_edge_values_of_the_filters(engine: AsyncEngine) -> None:
    def params(**values: float) -> SamplingParams:
        return SamplingParams(temperature=1, seed=1, max_tokens=12, **values)  # type: ignore[arg-type]

    greedy = (await run(engine, COUNT, SamplingParams(temperature=0, max_tokens=12))).token_ids
    plain = (await run(engine, COUNT, params())).token_ids
    for values in ({"top_p": 0}, {"top_k": 1}, {"min_p": 1}):
        assert (await run(engine, COUNT, params(**values))).token_ids == greedy, values
    for values in ({"top_p": 1}, {"top_k": 0}, {"top_k": 49152}, {"top_k": 10**9}, {"min_p": 0}):
        assert (await run(engine, COUNT, params(**values))).token_ids == plain, values


async def test_B061_figures_of_short_and_cancelled_replies_are_strict_json(engine: AsyncEngine) -> None:
    one = await run(engine, COUNT, SamplingParams(temperature=0, max_tokens=1))
    assert (one.timings.itl_ms, one.timings.tokens_per_second) == (None, None)
    stopped = await run(engine, COUNT, SamplingParams(temperature=0, max_tokens=9, stop=("1",)))
    assert stopped.text == ""
    stream = engine.generate(COUNT, GREEDY)
    stream.abort()
    for final in (one, stopped, await stream.result()):
        json.dumps(as_dict(final), allow_nan=False)


async def test_B063_counts_are_those_of_the_ids(engine: AsyncEngine) -> None:
    final = await run(engine, FACES, SamplingParams(temperature=0, max_tokens=24))
    assert final.usage.completion_tokens == 24 == len(final.token_ids)


async def test_logprobs_are_those_of_score(engine: AsyncEngine) -> None:
    final_params = SamplingParams(temperature=0, max_tokens=6, logprobs=3)
    entries = []
    stream = engine.generate(COUNT, final_params)
    async for event in stream:
        if isinstance(event, TextDelta):
            assert event.logprobs is not None
            entries += event.logprobs
    final = await stream.result()
    assert [entry.token_id for entry in entries] == list(final.token_ids)
    chosen = [(entry.token_id, entry.logprob, entry.text) for entry in entries]
    assert [entry.top[0] for entry in entries] == chosen, "greedy takes the best"
    assert [final.text[entry.offset :][: len(entry.text)] for entry in entries] == [e.text for e in entries]
    ids = COUNT_IDS + list(final.token_ids)
    scores = await engine.score(ids, chosen=True)
    assert np.isnan(scores[0])
    np.testing.assert_allclose(scores[39:], [entry.logprob for entry in entries], atol=1e-5)
    full = await engine.score(ids)
    assert full.shape == (45, 49152)
    np.testing.assert_array_equal(full[np.arange(44), ids[1:]], scores[1:])
    np.testing.assert_allclose(np.exp(full.astype(np.float64)).sum(axis=1), 1, atol=1e-4)


async def test_continue_final_goes_on_with_the_last_message(engine: AsyncEngine) -> None:
    begun = [*COUNT, Message("assistant", "1. 1\n2. 2\n")]
    stream = engine.generate(begun, SamplingParams(temperature=0, max_tokens=41), continue_final=True)
    assert "1. 1\n2. 2\n" + (await stream.result()).text == COUNT_TEXT


async def test_replies_to_one_prompt_share_its_blocks(engine: AsyncEngine) -> None:
    streams = engine.generate_many(COUNT, SamplingParams(temperature=1, seed=3, max_tokens=24), n=4)
    finals = [await stream.result() for stream in streams]
    assert len({final.token_ids for final in finals}) > 1
    assert sum(final.usage.cached_tokens >= 32 for final in finals) >= 3


@pytest.mark.slow
async def test_B033_two_hundred_aborts_leave_the_anchor_unchanged(engine: AsyncEngine) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    reasons, at_once = [], 0
    for _ in range(200):
        prompt = [rng.randrange(17, 49000) for _ in range(rng.choice([5, 40, 120]))]
        stream = engine.generate(prompt, SamplingParams(temperature=0, max_tokens=rng.choice([2, 60])))
        if pause := rng.choice([0, 0.002, 0.01, 0.04]):
            await asyncio.sleep(pause)
        at_once += not pause
        stream.abort()
        finals = [event async for event in stream if isinstance(event, Finished)]
        assert len(finals) == 1
        reasons.append(finals[0].reason)
    assert reasons.count("aborted") >= at_once > 0
    await engine.audit()
    snapshot = engine.snapshot()
    assert snapshot.blocks_free + snapshot.blocks_cached == snapshot.blocks_total
    assert (snapshot.running, snapshot.waiting) == (0, 0)
    assert (await run(engine, COUNT, GREEDY)).text == COUNT_TEXT


@pytest.mark.slow
async def test_sixteen_conversations_share_each_step(
    default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows in one step, hardly more steps than the longest reply, hardly a slot of the cache unused."""
    length = 320
    # Without drafts all of them are as far at any time.
    config = EngineConfig(model=default_model, max_sequences=16, context_length=1024, draft_model="none")
    async with AsyncEngine(config) as engine:
        params = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
        prompts = [[Message("user", f"Count from 1 to {10 + i}.")] for i in range(16)]
        snapshots = record_snapshots(monkeypatch)
        async with standing(engine, len(prompts)):
            streams = [engine.generate(prompt, params) for prompt in prompts]
        finals = [await stream.result() for stream in streams]
        assert all(len(final.token_ids) == length for final in finals)
        assert max(snapshot.last_step_rows for snapshot in snapshots) == 16
        assert engine.snapshot().steps <= 1.1 * length
        full = [
            snapshot.kv_utilisation or 0
            for snapshot in snapshots
            if snapshot.running == 16 and all(row.tokens >= 300 for row in snapshot.conversations)
        ]
        assert len(full) >= length - 300
        assert min(full) > 0.9
