"""The engine's asyncio side with a scripted model: events, ends, errors, aborts."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from engine import (
    AsyncEngine,
    EngineConfig,
    EngineError,
    Finished,
    Message,
    ResponseStream,
    SamplingParams,
    TextDelta,
)
from engine.core import EngineCore
from engine.snapshot import State
from engine.testing import ScriptedModel
from standing import standing
from waiting import until

ONE, DOT, SPACE, END = 33, 30, 216, 2
"""Ids of `1`, `.`, one space and the end token in the default vocabulary."""


def engine_of(
    default_model: Path, outputs: Sequence[Sequence[int]], step_seconds: float = 0.0, **config: object
) -> AsyncEngine:
    model = ScriptedModel(outputs, default_model, eos=[END, 0], step_seconds=step_seconds)
    return AsyncEngine(EngineConfig(model=model, **config))  # type: ignore[arg-type]


async def read(stream: ResponseStream) -> tuple[list[TextDelta], Finished]:
    """All events; checks the rules that hold for every request."""
    events = [event async for event in stream]
    deltas = [event for event in events if isinstance(event, TextDelta)]
    finals = [event for event in events if isinstance(event, Finished)]
    assert len(finals) == 1
    assert events[-1] is finals[0], "the final event is the last"
    assert "".join(delta.text for delta in deltas) == finals[0].text
    assert tuple(token for delta in deltas for token in delta.token_ids) == finals[0].token_ids
    assert finals[0].usage.completion_tokens == len(finals[0].token_ids)
    return deltas, finals[0]


@pytest.mark.parametrize("script", [[ONE, DOT, END, ONE, ONE], [ONE, DOT, 0, ONE, ONE]])
async def test_B011_every_end_token_ends_the_reply(default_model: Path, script: list[int]) -> None:
    async with engine_of(default_model, [script]) as engine:
        _, final = await read(engine.generate([5]))
    assert (final.text, final.reason, final.stop_match) == ("1.", "stop", script[2])
    assert final.token_ids == tuple(script[:3]), "the end token is counted"


async def test_B011_the_default_files_own_end_ids_both_end_a_reply(default_model: Path) -> None:
    for end in (2, 0):
        model = ScriptedModel([[ONE, DOT, end, ONE]], default_model)
        async with AsyncEngine(EngineConfig(model=model)) as engine:
            _, final = await read(engine.generate([5]))
        assert (final.text, final.reason) == ("1.", "stop")


async def test_ignore_eos_goes_on_and_own_stop_ids_stop(default_model: Path) -> None:
    scripts = [[ONE, END, DOT, SPACE, ONE]] * 2
    async with engine_of(default_model, scripts) as engine:
        _, final = await read(engine.generate([5], SamplingParams(ignore_eos=True, max_tokens=4)))
        assert (final.text, final.reason) == ("1. ", "length")
        params = SamplingParams(ignore_eos=True, stop_token_ids=(SPACE,))
        _, final = await read(engine.generate([5], params))
        assert (final.text, final.reason, final.stop_match) == ("1.", "stop", SPACE)


async def test_B063_tokens_are_counted_as_sampled_not_as_text(default_model: Path) -> None:
    async with engine_of(default_model, [[SPACE] * 4]) as engine:
        _, final = await read(engine.generate([5], SamplingParams(max_tokens=4)))
    assert final.text == "    "
    assert final.usage.completion_tokens == 4


async def test_stop_string_over_several_tokens_is_never_shown(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE, DOT, SPACE, ONE, DOT, DOT, ONE]]) as engine:
        deltas, final = await read(engine.generate([5], SamplingParams(stop=("1..",))))
    assert (final.text, final.reason, final.stop_match) == ("1. ", "stop", "1..")
    assert final.token_ids == (ONE, DOT, SPACE, ONE, DOT, DOT), "stop tokens are counted"
    assert all("1.." not in delta.text for delta in deltas)


async def test_text_held_back_for_a_stop_string_comes_at_the_end(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE, DOT]]) as engine:
        _, final = await read(engine.generate([5], SamplingParams(stop=("1.x",), max_tokens=2)))
    assert (final.text, final.reason) == ("1.", "length")


async def test_B001_a_character_cut_by_the_token_limit_is_valid_text(default_model: Path) -> None:
    async with engine_of(default_model, [[10813, 121, 250, 10813]]) as engine:
        deltas, final = await read(engine.generate([5], SamplingParams(max_tokens=4)))
    assert final.text.startswith("🫠")
    assert final.text.count("�") <= 1
    assert all("�" not in delta.text for delta in deltas[:-1])
    final.text.encode()


async def test_minimum_tokens_forbid_the_end(default_model: Path) -> None:
    async with engine_of(default_model, [[END] * 5 + [ONE]]) as engine:
        _, final = await read(engine.generate([5], SamplingParams(min_tokens=3, max_tokens=4, temperature=0)))
    assert END not in final.token_ids[:3]
    assert final.token_ids[3] == END


async def test_context_full_ends_with_context_and_never_exceeds_it(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 100], context_length=20) as engine:
        _, final = await read(engine.generate([5] * 12))
        assert final.reason == "context"
        assert final.usage.prompt_tokens + final.usage.completion_tokens == 20
        _, final = await read(engine.generate([5] * 20))
        assert final.reason == "error"
        assert final.error is not None
        assert final.error.code == "prompt_too_long"
        assert "20" in final.error.message


async def test_capacity_ends_the_only_runner_when_the_pool_is_full(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 200], kv_blocks=2, block_size=16) as engine:
        _, final = await read(engine.generate([5] * 10))
        assert final.reason == "capacity"
        assert final.usage.prompt_tokens + final.usage.completion_tokens == 33, (
            "32 cached, the last one sampled"
        )
        _, final = await read(engine.generate([5] * 40))
        assert final.error is not None
        assert final.error.code == "never_fits"
        assert "40" in final.error.message
        assert "32" in final.error.message


async def test_B027_an_empty_prompt_fails_alone(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 50, [], [DOT] * 3]) as engine:
        running = engine.generate([5], SamplingParams(max_tokens=50))
        _, empty = await read(engine.generate([]))
        assert empty.error is not None
        assert empty.error.code == "empty_prompt"
        _, nothing = await read(engine.generate(""))
        assert nothing.error is not None
        assert nothing.error.code == "empty_prompt"
        _, final = await read(running)
        assert final.token_ids == (ONE,) * 50


@pytest.mark.parametrize("prompt", [5, None, [1.5], ["a"], b"bytes", [Message("user", "a"), 5], {"a": 1}])
async def test_wrong_types_raise_at_once(default_model: Path, prompt: object) -> None:
    async with engine_of(default_model, []) as engine:
        with pytest.raises(TypeError):
            engine.generate(prompt)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            engine.generate("hi", {"temperature": 0})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="focus takes a reply's stream"):
            engine.focus(5)  # type: ignore[arg-type]


async def test_ids_and_settings_outside_the_vocabulary_are_refused(default_model: Path) -> None:
    async with engine_of(default_model, []) as engine:
        for prompt, params in (
            ([10**6], SamplingParams()),
            ([-1], SamplingParams()),
            ([5], SamplingParams(logit_bias={10**6: 1.0})),
        ):
            _, final = await read(engine.generate(prompt, params))
            assert final.error is not None
            assert final.error.code == "invalid_request"


async def test_a_full_queue_refuses_at_once(default_model: Path) -> None:
    scripts = [[ONE] * 300] * 4
    async with engine_of(default_model, scripts, 0.002, max_sequences=1, max_waiting=2) as engine:
        streams = [engine.generate([5], SamplingParams(max_tokens=300)) for _ in range(4)]
        _, refused = await read(streams[3])
        assert refused.error is not None
        assert refused.error.code == "queue_full"
        snapshot = engine.snapshot()
        assert snapshot.running + snapshot.waiting == 3, "it may have been published before the first step"
        for stream in streams[:3]:
            await stream.aclose()


async def test_whoever_has_a_first_token_stands_in_the_snapshot(default_model: Path) -> None:
    """Also when the last snapshot is younger than the time between two."""
    async with engine_of(default_model, [[ONE] * 5000] * 6, 0.005) as engine:
        for _ in range(6):
            async with engine.generate([5]) as stream:
                await anext(stream)
                assert stream.id in [row.id for row in engine.snapshot().conversations]


async def test_every_token_forbidden_is_an_error_of_that_request(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 3, [DOT] * 3]) as engine:
        bias = dict.fromkeys(range(49152), float("-inf"))
        _, final = await read(engine.generate([5], SamplingParams(logit_bias=bias)))
        assert final.error is not None
        assert final.error.code == "bad_logits"
        _, final = await read(engine.generate([5], SamplingParams(max_tokens=3)))
        assert final.token_ids == (DOT,) * 3


async def test_seed_is_reported_and_many_have_seeds_of_their_own(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE, END]] * 10) as engine:
        _, final = await read(engine.generate([5]))
        assert final.seed is not None
        _, final = await read(engine.generate([5], SamplingParams(seed=7)))
        assert final.seed == 7
        seeds = [(await read(s))[1].seed for s in engine.generate_many([5], SamplingParams(seed=7), n=4)]
        again = [(await read(s))[1].seed for s in engine.generate_many([5], SamplingParams(seed=7), n=4)]
        assert len(set(seeds)) == 4
        assert seeds == again


async def test_a_slow_consumer_finds_one_merged_delta(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 100]) as engine:
        stream = engine.generate([5], SamplingParams(max_tokens=100))
        await until(lambda: engine.snapshot().tokens_total == 100)
        await engine.audit()  # what a step brought is sent before what is asked for after it is answered
        deltas, final = await read(stream)
    assert len(deltas) == 1
    assert deltas[0].text == "1" * 100 == final.text


@pytest.mark.slow
@pytest.mark.parametrize("how", ["abort", "leave", "aclose", "drop", "close engine"])
async def test_every_way_to_stop_ends_the_request(default_model: Path, how: str) -> None:
    async with engine_of(default_model, [[ONE] * 5000, [DOT, END]], 0.001) as engine:
        stream = engine.generate([5])
        await anext(stream)
        if how == "abort":
            stream.abort()
            assert (await stream.result()).reason == "aborted"
        elif how == "leave":
            async with stream:
                pass
        elif how == "aclose":
            await stream.aclose()
            assert stream.finished is not None
            assert stream.finished.reason == "aborted"
        elif how == "drop":
            del stream
            gc.collect()
            while engine.snapshot().running:
                await asyncio.sleep(0.005)
        if how != "close engine":
            await engine.audit()
            _, final = await read(engine.generate([5]))
            assert final.text == "."
    if how == "close engine":
        assert (await stream.result()).reason == "aborted"


async def test_after_the_end_of_the_engine_requests_fail_at_once(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE, END]]) as engine:
        pass
    _, final = await read(engine.generate([5]))
    assert final.error is not None
    assert final.error.code == "engine_failed"
    assert engine.snapshot().state == "closed"


MOMENTS = ("waiting", "prefill", "decode", "any")
"""What a request does when it is aborted."""


@pytest.mark.slow
async def test_B033_aborts_at_random_moments_leave_no_trace(
    default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some by the engine's thread, when the request is seen to do what is wanted; some whenever it may be."""
    monkeypatch.setattr("engine.core.PUBLISH_SECONDS", -1.0)  # after each step
    publish = EngineCore._publish
    wanted, target, met = "any", None, set[tuple[str, int]]()

    def published(core: EngineCore, state: State) -> None:
        publish(core, state)
        if target is not None and (wanted, target.id) in [
            (r.state, r.id) for r in core.snapshot.conversations
        ]:
            met.add((wanted, target.id))
            target.abort()

    monkeypatch.setattr(EngineCore, "_publish", published)
    rng = random.Random(seed := random.randrange(10**9))
    print("seed", seed)
    config = {"max_sequences": 6, "kv_blocks": 40, "prefill_chunk": 16, "block_size": 16}
    async with engine_of(default_model, [[ONE] * 250] * 2500, **config) as engine:
        for number in range(200):
            wanted = MOMENTS[number % len(MOMENTS)]
            length = 150 if wanted == "prefill" else rng.choice([1, 20, 150])
            prompt = [rng.randrange(20, 40000) for _ in range(length)]
            limit = 100 if wanted == "decode" else rng.choice([1, 100])
            # Prompts are cut into chunks beside others, and those too many wait.
            others = rng.choice({"waiting": [8], "prefill": [3, 8]}.get(wanted, [0, 0, 3, 8]))
            async with standing(engine, others + 1):
                keep = [
                    engine.generate([5], SamplingParams(temperature=0, max_tokens=200)) for _ in range(others)
                ]
                target = stream = engine.generate(prompt, SamplingParams(temperature=0, max_tokens=limit))
            if wanted == "any":
                for _ in range(rng.randrange(200)):
                    await asyncio.sleep(0)
                stream.abort()
                stream.abort()
            _, final = await read(stream)
            assert final.reason in (("aborted", "length") if wanted == "any" else ("aborted",))
            stream.abort()
            for other in keep:
                await other.aclose()
                assert other.finished is not None
        await engine.audit()
        snapshot = engine.snapshot()
        assert snapshot.blocks_free + snapshot.blocks_cached == snapshot.blocks_total == 40
        assert snapshot.running == snapshot.waiting == 0
        assert Counter(state for state, _ in met) == dict.fromkeys(MOMENTS[:3], 50)
        _, final = await read(engine.generate([5], SamplingParams(temperature=0, max_tokens=20)))
        assert final.reason in ("length", "stop")


async def test_a_failing_step_ends_everyone_and_later_requests_fail_at_once(default_model: Path) -> None:
    model = ScriptedModel([[ONE] * 1000] * 4, default_model, eos=[END], step_seconds=0.001)
    async with AsyncEngine(EngineConfig(model=model)) as engine:
        streams = [engine.generate([5]) for _ in range(3)]
        for stream in streams:
            await anext(stream)

        model.fails = RuntimeError("the device is gone")
        for stream in streams:
            final = await stream.result()
            assert final.error is not None
            assert final.error.code == "engine_failed"
            assert "the device is gone" in final.error.message
        assert engine.snapshot().state == "failed"
        _, final = await read(engine.generate([5]))
        assert final.error is not None
        assert final.error.code == "engine_failed"


async def test_a_missing_model_is_one_clear_error() -> None:
    with pytest.raises(EngineError) as caught:
        async with AsyncEngine(EngineConfig(model="no/such/model.gguf")):
            pass
    assert caught.value.code == "model_invalid"
    assert "no/such/model.gguf" in caught.value.message


async def test_snapshot_rows_name_the_conversations(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 3000] * 2, 0.002) as engine:
        streams = [engine.generate([5] * 40) for _ in range(2)]
        await until(lambda: engine.snapshot().last_step_rows == 2 and engine.snapshot().tokens_per_second)
        snapshot = engine.snapshot()
        assert {row.id for row in snapshot.conversations} == {stream.id for stream in streams}
        assert snapshot.last_step_rows == 2
        assert snapshot.blocks_used > 0
        assert snapshot.tokens_per_second is not None
        assert all(row.shared_blocks >= 1 for row in snapshot.conversations), "the same prompt is stored once"
        for stream in streams:
            await stream.aclose()


async def test_focus_wins_the_tie_for_admission(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 40] * 3, 0.003, max_sequences=1) as engine:
        async with standing(engine, 4):  # and the focus
            streams = [engine.generate([5], SamplingParams(max_tokens=40)) for _ in range(3)]
            engine.focus(streams[2])
        order: list[int] = []

        async def finish(index: int) -> None:
            await streams[index].result()
            order.append(index)

        await asyncio.gather(*(finish(index) for index in range(3)))
        assert order.index(2) < order.index(1)


async def test_nothing_waits_for_an_engine_that_was_never_opened(default_model: Path) -> None:
    engine = engine_of(default_model, [])
    async with asyncio.timeout(60):
        for call in (
            engine.bandwidth_peak,
            engine.audit,
            partial(engine.tokenize, "a"),
            partial(engine.score, [5]),
        ):
            with pytest.raises(RuntimeError, match="async with"):
                await call()
        await engine.close()


async def test_odd_template_variables_are_refused_with_a_reason(default_model: Path) -> None:
    endless: list[object] = []
    endless.append(endless)
    async with engine_of(default_model, []) as engine:
        with pytest.raises(TypeError, match="strings, not 1"):
            engine.generate([Message("user", "a")], template_vars={1: 2})  # type: ignore[dict-item]
        final = await engine.generate([Message("user", "a")], template_vars={"a": {"b": endless}}).result()
    assert final.error is not None
    assert final.error.code == "template"
    assert "nested" in final.error.message
