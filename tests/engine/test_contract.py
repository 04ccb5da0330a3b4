"""What a caller who knows only the public names may try: argument forms, edges, closing, several readers."""

import asyncio
import gc
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

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
from engine.metrics import from_times
from engine.quantization import dequantize, quantize
from engine.testing import ScriptedModel
from standing import record_snapshots, standing
from waiting import wait_for

ONE = 33
GREEDY = SamplingParams(temperature=0)


def engine_of(
    tokenizer: Path, scripts: list[list[int]], step_seconds: float = 0.0, **fields: object
) -> AsyncEngine:
    model = ScriptedModel(scripts, tokenizer=tokenizer, eos=[2], step_seconds=step_seconds)
    return AsyncEngine(EngineConfig(model=model, **fields))


@pytest.mark.parametrize("format", ["q8", "q4"])
def test_quantize_takes_tensors_of_any_kind(format: str) -> None:
    w = np.random.default_rng(3).normal(size=(3, 100)).astype(np.float32)
    expected = dequantize(quantize(w, format))
    assert np.array_equal(dequantize(quantize(w.tolist(), format)), expected)
    assert np.array_equal(dequantize(quantize(torch.nn.Parameter(torch.tensor(w)), format)), expected)
    rounded = torch.tensor(w).to(torch.bfloat16)
    expected = dequantize(quantize(rounded.float().numpy(), format))
    assert np.array_equal(dequantize(quantize(rounded, format)), expected)


def test_token_times_may_be_an_array_or_a_tensor() -> None:
    times = [2.0, 2.5, 3.0]
    expected = from_times(1.0, 1.5, times)
    assert expected.tokens_per_second == 2.0
    assert from_times(1.0, 1.5, np.array(times)) == expected
    assert from_times(1.0, 1.5, torch.tensor(times)) == expected
    assert from_times(1.0, 1.5, np.array([])).ttft_ms is None


def test_a_final_event_with_an_error_can_be_pickled() -> None:
    error = EngineError("never_fits", "too long")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.message, str(copy)) == ("never_fits", "too long", "too long")


@pytest.mark.parametrize(
    "settings",
    [{"stop": None}, {"stop_token_ids": 2}, {"logit_bias": None}, {"logit_bias": [1]}, {"ignore_eos": "no"}],
)
def test_settings_of_a_wrong_kind_are_refused_by_name(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        SamplingParams(**settings)


@pytest.mark.parametrize("fields", [{"model": None}, {"model": 5}, {"block_size": 16.0}, {"device": "cuda:"}])
def test_engine_fields_of_a_wrong_kind_are_refused_by_name(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        EngineConfig(**{"model": "m.gguf", **fields})


def test_a_mapping_without_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match="model"):
        EngineConfig.from_mapping({"threads": 2})


async def test_a_small_step_alone_makes_a_small_batch(default_model: Path) -> None:
    """The default of one option must not forbid a value of another."""
    async with engine_of(default_model, [[ONE] * 9] * 12, max_batch_tokens=8) as engine:
        streams = [engine.generate([5] * 20, GREEDY) for _ in range(12)]
        finals = [await stream.result() for stream in streams]
    assert all(final.token_ids == (*[ONE] * 9, 2) for final in finals)


async def test_a_script_outside_the_vocabulary_is_refused_at_the_start(default_model: Path) -> None:
    for token in (49152, -1):
        with pytest.raises(EngineError, match=str(token)):
            await engine_of(default_model, [[ONE, token]]).__aenter__()


async def test_integers_of_numpy_are_token_ids(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE]]) as engine:
        assert await engine.tokenize(list(np.array([5, 6]))) == [5, 6]
        with pytest.raises(TypeError):
            engine.generate_many("x", {"seed": 1}, n=2)


async def test_template_variables_that_the_engine_sets_are_refused_by_name(default_model: Path) -> None:
    talk = [Message("user", "Hi")]
    async with engine_of(default_model, [[ONE]] * 4) as engine:
        for name in ("messages", "template", "continue_final"):
            final = await engine.generate(talk, GREEDY, template_vars={name: []}).result()
            assert final.error is not None
            assert (final.error.code, repr(name) in final.error.message) == ("template", True)
        with pytest.raises(TypeError, match="template_vars"):
            engine.generate(talk, GREEDY, template_vars=5)


async def test_a_prompt_may_fill_the_whole_pool(default_model: Path) -> None:
    """The last sampled token needs no place in the cache."""
    async with engine_of(default_model, [[ONE] * 9] * 3, kv_blocks=2, block_size=16) as engine:
        for _ in range(2):  # the second one finds its prompt in the cache
            final = await engine.generate([5] * 32, GREEDY).result()
            assert (final.reason, final.token_ids) == ("capacity", (ONE,))
        final = await engine.generate([5] * 33, GREEDY).result()
        assert final.error is not None
        assert final.error.code == "never_fits"


async def test_a_preempted_conversation_is_waiting(
    default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = record_snapshots(monkeypatch)
    scripts = [[ONE] * 40] * 4
    async with engine_of(default_model, scripts, kv_blocks=6, block_size=16) as engine:
        async with standing(engine, 4):
            streams = [engine.generate([7 + index] * 20, GREEDY) for index in range(4)]
        for stream in streams:
            await stream.result()
    for snapshot in snapshots:
        waiting = [row for row in snapshot.conversations if row.state == "waiting"]
        assert len(waiting) >= snapshot.waiting
    assert {snapshot.preemptions > 0 for snapshot in snapshots if snapshot.waiting} == {False, True}


async def test_aclose_from_another_task_ends_the_reader(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 5000] * 20, 0.001) as engine:
        for _ in range(20):
            stream = engine.generate("x", GREEDY)
            events = []

            async def read(stream=stream, events=events) -> None:
                async for event in stream:
                    events.append(event)

            reader = asyncio.create_task(read())
            await asyncio.sleep(0.008)
            await stream.aclose()
            async with asyncio.timeout(60):
                await reader
            assert all(isinstance(event, TextDelta) for event in events[:-1])
            assert sum(isinstance(event, Finished) for event in events) <= 1
            assert stream.finished is not None
            assert stream.finished.reason == "aborted"


async def test_looking_in_reads_what_waiting_would(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 50] * 2, 0.001) as engine:
        waited = await engine.generate("x", GREEDY).result()
        stream = engine.generate("x", GREEDY)
        tokens: list[int] = []
        async with asyncio.timeout(60):
            while stream.finished is None:
                event = stream.take()
                if event is None:
                    await asyncio.sleep(0.001)
                elif isinstance(event, TextDelta):
                    tokens += event.token_ids
        assert stream.take() is None, "the final event is read once"
        assert (await stream.result()).token_ids == waited.token_ids == tuple(tokens)


async def test_a_closed_engine_says_so(default_model: Path) -> None:
    async with engine_of(default_model, [[ONE] * 50] * 50) as engine:
        streams = [engine.generate("word " * 300, GREEDY) for _ in range(20)]
    finals = [await stream.result() for stream in streams]
    assert {final.reason for final in finals} <= {"aborted", "stop"}
    assert all(final.error is None for final in finals)
    final = await engine.generate("x", GREEDY).result()
    assert final.error is not None
    assert final.error.code == "engine_failed"
    for call in (engine.tokenize("x"), engine.score([1]), engine.bandwidth_peak()):
        with pytest.raises(EngineError, match="closed"):
            await call
    with pytest.raises(RuntimeError, match="once"):
        await engine.__aenter__()


@pytest.mark.parametrize("moment", ["loading", "generating"])
def test_an_engine_whose_loop_is_closed_ends(
    default_model: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left to read, so it neither runs on nor keeps the model; no thread dies of an exception."""
    uncaught: list[object] = []
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    before = set(threading.enumerate())
    engine = engine_of(default_model, [[ONE] * 8000], 0.002)
    loop = asyncio.new_event_loop()

    async def generate() -> ResponseStream:
        await engine.__aenter__()
        stream = engine.generate("x", GREEDY)
        await anext(stream)
        return stream

    if moment == "generating":
        stream = loop.run_until_complete(generate())
        loop.close()
        assert stream.finished is None
    else:
        opening = engine.__aenter__()
        loop.call_soon(loop.stop)
        task = loop.create_task(opening)
        loop.run_forever()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
    wait_for(lambda: set(threading.enumerate()) <= before)
    assert engine.snapshot().state == "closed"
    assert engine.snapshot().running == 0
    assert not uncaught


def test_a_stream_dropped_while_its_events_are_delivered_is_no_deadlock(default_model: Path) -> None:
    """The garbage collector may drop a stream, and so abort it, on any thread in the middle of anything."""

    async def drop() -> None:
        async with engine_of(default_model, [[ONE] * 8000], 0.001) as engine:
            stream = engine.generate("x", GREEDY)
            await anext(stream)
            with engine._outbox._lock:
                del stream
                gc.collect()
            while engine.snapshot().running:
                await asyncio.sleep(0.005)

    thread = threading.Thread(target=asyncio.run, args=(drop(),), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
