"""How requests, engines and processes end: each request with one final event, and nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import AsyncEngine, EngineConfig, EngineError, Message, SamplingParams
from engine.logprobs import MOST_SCORES, Scores
from engine.model import LoadedModel
from engine.testing import ScriptedModel
from kernels.program import DeviceFault
from waiting import wait_for

A, END = 65, 257
GREEDY = SamplingParams(temperature=0)


def engine_of(tokenizer: Path, scripts: list[list[int]], seconds: float = 0.0, **fields: Any) -> AsyncEngine:
    context = fields.pop("context_length", 2000)
    model = ScriptedModel(scripts, tokenizer, [END], step_seconds=seconds, context_length=context)
    return AsyncEngine(EngineConfig(model=model, block_size=16, **fields))


def engine_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name in ("engine", "outbox", "prompt")}


async def test_a_broken_pool_ends_everyone_and_is_not_touched_again(tiny_tokenizer: Path) -> None:
    """A reference count is wrong and a step fails: giving the blocks back would fail as well."""
    model = ScriptedModel([[A] * 1000] * 4, tiny_tokenizer, [END], step_seconds=0.001)
    async with AsyncEngine(EngineConfig(model=model)) as engine:
        streams = [engine.generate([5] * 40) for _ in range(4)]
        for stream in streams:
            await anext(stream)
        service = engine._core._service
        assert service is not None
        service.pool._references[:] = [0] * len(service.pool._references)
        model.fails = SystemExit("the device is gone")
        async with asyncio.timeout(60):
            finals = [await stream.result() for stream in streams]
        assert {final.error.code for final in finals if final.error} == {"engine_failed"}
        assert all("the device is gone" in str(final.error) for final in finals)
        assert engine.snapshot().state == "failed"
        late = await engine.generate("Hi").result()
        assert late.error is not None
        assert "the device is gone" in late.error.message
        for call in (engine.tokenize("x"), engine.score([5]), engine.bandwidth_peak(), engine.audit()):
            with pytest.raises(EngineError, match="the device is gone"):
                await call


@pytest.mark.parametrize(
    "name",
    [
        "core.EngineCore._prepared",
        "core.EngineCore._publish",
        "outbox.Outbox.send",
        "request.Request.finish",
        "service.Service.step",
        "scheduler.Scheduler.remove",
    ],
)
async def test_what_fails_every_time_ends_the_engine_and_everyone_in_it(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    broken = False
    owner: Any = getattr(importlib.import_module("engine." + name.split(".")[0]), name.split(".")[1])
    whole = getattr(owner, name.split(".")[2])

    def fails(*arguments: Any, **more: Any) -> Any:
        if broken:
            raise SystemExit("it is broken")
        return whole(*arguments, **more)

    monkeypatch.setattr(owner, name.split(".")[2], fails)
    async with engine_of(tiny_tokenizer, [[A] * 9] * 4, 0.001) as engine:
        broken = True
        streams = [engine.generate(prompt) for prompt in ("text", [5], [Message("user", "Hi")])]
        async with asyncio.timeout(60):
            finals = [await stream.result() for stream in streams]
        assert any(final.reason == "error" for final in finals)
        assert engine.snapshot().state == "failed"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("broken"), "model_invalid"),
        (SystemExit("broken"), "model_invalid"),
        (MemoryError("broken"), "out_of_memory"),
        (DeviceFault("broken"), "engine_failed"),
    ],
)
async def test_a_load_that_fails_while_calls_wait_answers_them(error: BaseException, code: str) -> None:
    begun, leave = threading.Event(), threading.Event()

    class Broken:
        def load(self, config: EngineConfig) -> LoadedModel:
            begun.set()
            leave.wait(300)
            raise error

    engine = AsyncEngine(EngineConfig(model=Broken()))  # type: ignore[arg-type]
    opening = asyncio.create_task(engine.__aenter__())
    await asyncio.to_thread(begun.wait, 60)
    engine.focus(None)
    calls = [asyncio.create_task(engine.bandwidth_peak()), asyncio.create_task(engine.audit())]
    with pytest.raises(RuntimeError, match="no model yet"):
        await engine.tokenize("x")
    await asyncio.sleep(0)
    leave.set()
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(opening, *calls, return_exceptions=True)
    assert [getattr(outcome, "code", outcome) for outcome in outcomes] == [code] * 3
    assert all("broken" in str(outcome) for outcome in outcomes)
    assert engine.snapshot().state == "failed"
    wait_for(lambda: not engine_threads())


async def test_scores_beyond_a_bound_are_refused_and_those_within_it_are_not(tiny_tokenizer: Path) -> None:
    most = MOST_SCORES // 4 // 258
    async with engine_of(tiny_tokenizer, [[A] * 50], 0.001, context_length=most + 10) as engine:
        other = engine.generate("Hi")
        with pytest.raises(EngineError, match=str(MOST_SCORES)) as caught:
            await engine.score([5] * (most + 1))
        assert caught.value.code == "never_fits"
        assert (await engine.score([5] * 300)).shape == (300, 258)
        assert (await engine.score([5] * 300, chosen=True)).shape == (300,)
        assert (await other.result()).error is None


@pytest.mark.parametrize("error", [MemoryError("10 GB"), ValueError("odd")])
async def test_what_fails_for_one_request_ends_that_one_only(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(Scores, "add", fails)
    monkeypatch.setattr("engine.request.token_logprob", fails)
    async with engine_of(tiny_tokenizer, [[A] * 50] * 9, 0.001) as engine:
        other = engine.generate("Hi")
        code = "out_of_memory" if isinstance(error, MemoryError) else "request_failed"
        with pytest.raises(EngineError, match=str(error)) as caught:
            await engine.score([5] * 30)
        assert caught.value.code == code
        final = await engine.generate("Hi", SamplingParams(logprobs=3)).result()
        assert final.error is not None
        assert final.error.code == code
        await engine.audit()
        assert (await other.result()).token_ids == (*[A] * 50, END)
        assert engine.snapshot().state == "ready"


def test_N039_scores_of_a_model_that_gives_nan_are_an_error() -> None:
    logits = np.zeros((3, 7), np.float32)
    for bad in (np.nan, np.inf):
        for kind in ("all", "chosen"):
            scores = Scores([1, 2, 3], 7, kind)  # type: ignore[arg-type]
            logits[1, 4] = bad
            with pytest.raises(EngineError, match="NaN") as caught:
                scores.add(0, logits)
            assert caught.value.code == "bad_logits"
    logits[1, 4] = -np.inf  # a forbidden token is a number like any other
    scores.add(0, logits)
    assert np.isfinite(scores.values[1:]).all()


async def test_N039_score_raises_it(tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.testing.SURE", np.float32(np.nan))
    async with engine_of(tiny_tokenizer, [[A]]) as engine:
        with pytest.raises(EngineError) as caught:
            await engine.score([5, 6, 7])
        assert caught.value.code == "bad_logits"


async def test_a_recomputed_prompt_is_no_cached_prompt(tiny_tokenizer: Path) -> None:
    """Prompts that differ, in a pool so small that they preempt each other."""
    async with engine_of(tiny_tokenizer, [[A] * 60] * 4, kv_blocks=8, prefill_chunk=16) as engine:
        streams = [engine.generate([10 + index] * 40, GREEDY) for index in range(4)]
        finals = [await stream.result() for stream in streams]
        assert engine.snapshot().preemptions > 0
        assert [final.usage.cached_tokens for final in finals] == [0] * 4
        assert engine.snapshot().prefix_tokens_saved == 0
        again = await engine.generate([13] * 40, GREEDY).result()
        assert again.usage.cached_tokens == engine.snapshot().prefix_tokens_saved


@pytest.mark.slow
async def test_an_engine_and_its_streams_dropped_without_a_word_end(tiny_tokenizer: Path) -> None:
    before = engine_threads()
    engine: AsyncEngine | None = engine_of(tiny_tokenizer, [[A] * 1500] * 4, 0.001)
    assert engine is not None
    await engine.__aenter__()
    stream: Any = engine.generate("Hi")
    engine = None
    gc.collect()
    await anext(stream)
    del stream
    gc.collect()
    while engine_threads() - before:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("moment", ["idle", "generating"])
def test_an_engine_whose_loop_is_gone_leaves_no_thread(tiny_tokenizer: Path, moment: str) -> None:
    """Also where nobody read anything just then."""
    before = engine_threads()
    engine = engine_of(tiny_tokenizer, [[A] * 1500] * 4, 0.001)
    streams: list[Any] = []

    async def leave() -> None:
        await engine.__aenter__()
        if moment == "generating":
            streams.append(engine.generate("Hi"))
            await anext(streams[0])

    asyncio.run(leave())
    gc.collect()
    wait_for(lambda: not engine_threads() - before)
    assert engine.snapshot().state == "closed"


@pytest.mark.slow
async def test_an_engine_keeps_nobody_waiting_in_another_event_loop(tiny_tokenizer: Path) -> None:
    """Its threads wake readers on the loop that it was opened in; those elsewhere would wait for ever."""

    async def elsewhere(engine: AsyncEngine) -> list[str]:
        said = []
        calls = [engine.generate("Hi").result(), engine.tokenize("x" * 10), engine.audit()]
        for call in (*calls, engine.score([5] * 100)):
            try:
                async with asyncio.timeout(60):
                    await call
            except RuntimeError as error:
                said.append(str(error))
        return said

    async with engine_of(tiny_tokenizer, [[A] * 1000] * 3, seconds=0.001) as engine:
        said = await asyncio.to_thread(asyncio.run, elsewhere(engine))
        assert said == [said[0]] * 4
        assert "asyncio.run_coroutine_threadsafe" in said[0]
        loop = asyncio.get_running_loop()
        asked = asyncio.run_coroutine_threadsafe
        ids = await asyncio.to_thread(lambda: asked(engine.tokenize("x"), loop).result(60))
        assert ids == await engine.tokenize("x")
        assert (await engine.generate([5] * 4, SamplingParams(max_tokens=3)).result()).reason == "length"


def test_sessions_of_every_kind_leave_nothing(tiny_tokenizer: Path) -> None:
    """Random submits, aborts and dropped streams over tiny pools; engines closed, dropped, or cut off."""
    seed = random.randrange(10**9)
    print("seed", seed)
    rng = random.Random(seed)
    before, descriptors = engine_threads(), len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0

    async def some(engine: AsyncEngine, tasks: list[asyncio.Task[Any]]) -> None:
        keep = []
        for _ in range(rng.randrange(5, 40)):
            prompt = rng.choice(["x", "text " * 30, [Message("user", "Hi")], [A] * rng.randrange(1, 90), ""])
            stream = engine.generate(prompt, SamplingParams(max_tokens=rng.choice([1, 20, None])))
            match rng.randrange(5):
                case 0:
                    del stream
                case 1:
                    stream.abort()
                    keep.append(stream)
                case 2:
                    tasks.append(asyncio.create_task(leaving(stream)))
                case 3:
                    tasks.append(asyncio.create_task(stream.result()))  # type: ignore[arg-type]
                    if rng.random() < 0.5:
                        await asyncio.sleep(rng.random() * 0.002)
                        tasks[-1].cancel()
                case 4:
                    keep.append(stream)
            stream = None  # type: ignore[assignment]

    async def leaving(stream: Any) -> None:
        async with stream:
            async for _ in stream:
                if rng.random() < 0.1:
                    return

    async def session(engine: AsyncEngine, how: str) -> None:
        tasks: list[asyncio.Task[Any]] = []
        await engine.__aenter__()
        await some(engine, tasks)
        if how == "drained":
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            tasks.clear()
            task = None
            gc.collect()
            async with asyncio.timeout(60):
                while engine.snapshot().running or engine.snapshot().waiting:
                    await asyncio.sleep(0.002)
            await engine.audit()
            assert engine.snapshot().blocks_used == 0
        if how in ("drained", "closed"):
            await engine.close()

    for _ in range(12):
        scripts = [[A] * rng.choice([3, 300])] * 50
        limits = {"max_sequences": rng.choice([1, 4, 64]), "max_waiting": rng.choice([2, 100])}
        engine = engine_of(tiny_tokenizer, scripts, 0.0002, kv_blocks=rng.choice([3, 8, 60]), **limits)
        how, loop = rng.choice(["drained", "closed", "left", "cut off"]), asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # tasks that are dropped with their loop say so
        loop.run_until_complete(session(engine, how))
        if how == "left":
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        del engine, loop
    gc.collect()
    wait_for(lambda: not engine_threads() - before)
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) <= descriptors


def own_memory() -> int:
    """Bytes of this process that are no file's, in memory or swapped out."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap")) * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_N035_memory_does_not_grow_with_the_number_of_requests(tiny_tokenizer: Path) -> None:
    rng = random.Random(9)

    async def one(engine: AsyncEngine, kind: str) -> None:
        prompt = [rng.randrange(256) for _ in range(64)]
        params = SamplingParams(max_tokens=8, logprobs=20 if kind == "logprobs" else None)
        if kind == "n":
            await asyncio.gather(*(s.result() for s in engine.generate_many(prompt, params, n=4)))
            return
        variables = {"nonsense": object()} if kind == "template" else {}
        refused = {"long": [5] * 3000, "template": [Message("user", "Hi")], "text": "text " * 60_000}
        stream = engine.generate(refused.get(kind, prompt), params, template_vars=variables)
        if kind == "aborted":
            await asyncio.sleep(rng.random() * 0.002)
            stream.abort()
        final = await stream.result()
        assert (final.error is not None) == (kind in refused)

    async def many(engine: AsyncEngine, kinds: list[str]) -> None:
        for start in range(0, len(kinds), 50):
            await asyncio.gather(*(one(engine, kind) for kind in kinds[start : start + 50]))

    async with engine_of(tiny_tokenizer, [[A] * 8] * 5000, kv_blocks=256) as engine:
        await many(engine, ["plain"] * 300 + ["logprobs"] * 20 + ["text"] * 2)
        threads = len(engine_threads())
        kinds = {
            "plain": 700,
            "aborted": 200,
            "logprobs": 200,
            "n": 50,
            "long": 48,
            "template": 48,
            "text": 4,
        }
        mixed = [kind for kind, count in kinds.items() for _ in range(count)]
        grown = []
        for _ in range(3):  # what is kept for each request is kept each time; the heap grows now and then
            gc.collect()
            before = own_memory()
            rng.shuffle(mixed)
            await many(engine, mixed)
            gc.collect()
            grown.append(own_memory() - before)
            if grown[-1] < 16 << 20:
                break
        assert min(grown) < 16 << 20, grown
        assert len(engine_threads()) <= max(threads, 6), "the engine's, the outbox's, four for prompts"
        await engine.audit()
        assert engine.snapshot().blocks_used == 0


FORKING = """
import asyncio, os, sys
from engine import AsyncEngine, EngineConfig, EngineError
from engine.testing import ScriptedModel

def engine():
    script = [[65] * 100_000] * 4  # more than comes while it is looked at
    model = ScriptedModel(script, sys.argv[1], [257], step_seconds=0.001, context_length=110_000)
    return AsyncEngine(EngineConfig(model=model))

async def child(inherited):
    try:
        await engine().__aenter__()
    except EngineError as error:
        print(error.code, error.message)
    final = await inherited.generate("Hi").result()
    print(final.error.code, inherited.snapshot().state)
    await inherited.close()

async def main():
    async with engine() as running:
        stream = running.generate("Hi")
        await anext(stream)
        pid = os.fork()
        if pid == 0:
            asyncio._set_running_loop(None)
            asyncio.run(child(running))
            sys.stdout.flush()
            os._exit(0)
        await asyncio.to_thread(os.waitpid, pid, 0)
        stream.abort()
        print((await stream.result()).reason)
    pid = os.fork()
    if pid == 0:
        asyncio._set_running_loop(None)
        asyncio.run(fresh())
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)

async def fresh():
    async with engine() as other:
        async with other.generate("Hi") as stream:
            await anext(stream)
            print("a child forked later works")

asyncio.run(main())
"""

EXITING = """
import asyncio, sys
from engine import AsyncEngine, EngineConfig
from engine.testing import ScriptedModel

async def main():
    model = ScriptedModel([[65]] * 9, sys.argv[1], [257], context_length=100_000)
    engine = await AsyncEngine(EngineConfig(model=model)).__aenter__()
    streams = [engine.generate("a" * 390_000) for _ in range(4)] + [engine.generate("a" * 8_000_000)]
    await asyncio.sleep(0.05)
    print("left")

asyncio.run(main())
"""


def run(script: str, tokenizer: Path) -> list[str]:
    command = [sys.executable, "-u", "-c", script, str(tokenizer)]  # a child prints no copy
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_forked_process_is_told_that_no_engine_runs_in_it(tiny_tokenizer: Path) -> None:
    told, inherited, parent, later = run(FORKING, tiny_tokenizer)
    assert told.startswith("engine_failed this process was forked")
    assert inherited == "engine_failed failed"
    assert parent == "aborted"
    assert later == "a child forked later works"


@pytest.mark.slow
def test_N012_a_program_that_leaves_while_prompts_are_tokenized_ends(tiny_tokenizer: Path) -> None:
    assert run(EXITING, tiny_tokenizer) == ["left"]


CUT_SHORT = """
import asyncio, os, sys
from engine import AsyncEngine, EngineConfig
async def main():
    async with AsyncEngine(EngineConfig(model=sys.argv[1], kv_blocks=4)) as engine:
        os.truncate(sys.argv[1], 4096)
        print((await engine.generate("abc").result()).error)
asyncio.run(main())
"""


@pytest.mark.slow
def test_a_model_file_that_is_cut_short_in_use_ends_replies_and_not_the_program(
    default_model: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "model.gguf"
    copy.write_bytes(default_model.read_bytes())
    command = [sys.executable, "-c", CUT_SHORT, str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "cut short" in done.stdout) == (0, True), done
