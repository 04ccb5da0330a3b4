"""Long prompts, hostile ones, and many at once: who waits for whom, and what is refused before the work."""

from __future__ import annotations

import asyncio
import base64
import random
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import AsyncEngine, EngineConfig, EngineError, Message, SamplingParams
from engine.commands import Source, Submit
from engine.preparation import Preparation
from engine.prompt import PIECE, WHOLE, encode
from engine.testing import ScriptedModel
from standing import standing
from waiting import wait_for

ONE = 33


def engine_of(tokenizer: Path, **more: Any) -> AsyncEngine:
    return AsyncEngine(EngineConfig(model=ScriptedModel([[ONE] * 5] * 50, tokenizer, [2], **more)))


LONG = {
    "words": "word " * 4_000_000,
    "one word": "a" * 5_000_000,
    "base64": base64.b64encode(random.Random(1).randbytes(3_750_000)).decode(),
    "line ends": "\n" * 5_000_000,
    "control tokens": "<|im_start|>" * 500_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
async def test_N012_a_huge_prompt_is_refused_with_a_lower_bound_and_delays_nobody(
    default_model: Path, kind: str
) -> None:
    async with engine_of(default_model) as engine:
        huge = [engine.generate(LONG[kind]) for _ in range(6)]  # more than there are threads
        huge.append(engine.generate([Message("system", "Be kind."), Message("user", LONG[kind])]))
        small = engine.generate("Hi")
        assert (await small.result()).text == "11111"
        with pytest.raises(EngineError, match="more than"):
            await engine.tokenize(LONG[kind])
        for stream in huge:
            final = await stream.result()
            assert final.error is not None
            assert final.error.code == "prompt_too_long"
            assert "more than" in final.error.message
            assert "8192" in final.error.message


async def test_N012_what_fits_is_not_refused_however_many_characters_it_has(
    default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some tokens are long: this is more text than would usually fit, and its pieces have to be counted."""
    text = ("-" * 64 + " " * 64) * 3000
    async with engine_of(default_model, context_length=20_000) as engine:
        assert len(text) > max(WHOLE, 4 * 20_000)
        expected = len(await engine.tokenize(text))
        assert WHOLE / 100 < expected < 20_000
        final = await engine.generate(text).result()
        assert (final.reason, final.usage.prompt_tokens) == ("stop", expected)
        # White space that the template strips counts for nothing.
        monkeypatch.setattr(
            "engine.prompt.chat_text", lambda _, __, messages, **more: (messages[0].content.strip(), {})
        )
        final = await engine.generate([Message("user", "Hi" + " " * 3_000_000)]).result()
        assert final.reason == "stop"


def test_N012_no_call_of_the_tokenizer_gets_more_than_a_bounded_piece(default_model: Path) -> None:
    sizes: list[int] = []

    def count(text: str, **how: object) -> list[int]:
        sizes.append(len(text))
        return [0] * (len(text) // 100)

    model: Any = SimpleNamespace(
        name="m", context_length=5000, tokenizer=SimpleNamespace(encode=count), chat_template=None
    )
    with pytest.raises(EngineError, match="more than"):
        for _ in encode(model, Source("x" * 3_000_000, False, {})):
            pass
    assert max(sizes) == PIECE
    assert len(sizes) < 20, "it stops as soon as the answer is known"


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_N012_an_abort_holds_while_the_prompt_is_tokenized(
    default_model: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The final event comes at once, even if the tokenizer does not come back."""
    inside, leave = threading.Event(), threading.Event()

    def stuck(model: object, source: object) -> Any:
        inside.set()
        leave.wait(300)
        yield from ()
        return [5]

    monkeypatch.setattr("engine.preparation.encode", stuck)
    async with engine_of(default_model) as engine:
        stream = engine.generate("text")
        task = asyncio.create_task(engine.tokenize("text"))
        await asyncio.to_thread(inside.wait, 60)
        assert engine.snapshot().waiting <= 1
        if how == "abort":
            stream.abort()
            async with asyncio.timeout(60):
                assert (await stream.result()).reason == "aborted"
            task.cancel()
    async with asyncio.timeout(60):
        assert (await stream.result()).reason == "aborted"
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled() if how == "abort" else isinstance(task.exception(), EngineError)
    leave.set()


async def test_nothing_is_left_of_calls_that_were_cancelled(
    default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = threading.Event()

    def stuck(model: object, source: object) -> Any:
        leave.wait(300)
        yield from ()
        return [5]

    monkeypatch.setattr("engine.preparation.encode", stuck)
    async with engine_of(default_model) as engine:
        before = len(engine._outbox._open)
        tasks = [asyncio.create_task(engine.tokenize("text")) for _ in range(9)]
        await asyncio.sleep(0)
        assert len(engine._outbox._open) == before + 9
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(engine._outbox._open) == before
        leave.set()
        await engine.audit()


async def test_a_panic_of_the_tokenizer_ends_its_request_alone(
    default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicError(BaseException):
        pass

    async with engine_of(default_model) as engine:
        with monkeypatch.context() as patch:

            def panics(*_: object, **__: object) -> Any:
                raise PanicError("index out of bounds")

            patch.setattr("engine.tokenization.tokenizer.Tokenizer.encode", panics)
            final = await engine.generate("text").result()
            assert final.error is not None
            assert final.error.code == "request_failed"
            assert "index out of bounds" in final.error.message
            with pytest.raises(EngineError, match="index out of bounds"):
                await engine.tokenize("text")
        assert (await engine.generate("Hi").result()).text == "11111"
        assert engine.snapshot().state == "ready"


class Work:
    """Prompts of given numbers of pieces, worked on by one thread; `done` has them as they are ready."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pieces: dict[int, int]) -> None:
        self.done: list[int] = []
        self.begin = threading.Event()

        def steps(_: object, source: Source) -> Any:
            self.begin.wait(60)
            assert isinstance(source.content, str)
            for _ in range(pieces[int(source.content)]):
                yield
            return [1]

        monkeypatch.setattr("engine.preparation.encode", steps)
        monkeypatch.setattr("engine.preparation.THREADS", 1)
        self.preparation = Preparation(lambda command, result: self.done.append(command.id), pytest.fail)
        self.preparation.start(SimpleNamespace())  # type: ignore[arg-type]

    def add(self, number: int) -> None:
        source = Source(str(number), False, {})
        self.preparation.add(Submit(number, source, SamplingParams(), 0, 0.0))


def test_N012_who_has_had_least_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch, {1: 50, 2: 3, 3: 50, 4: 0, 5: 1})
    for number in range(1, 6):
        work.add(number)
    work.preparation.drop(3)
    work.begin.set()
    wait_for(lambda: len(work.done) == 4)
    assert work.done == [4, 5, 2, 1]
    work.preparation.close()
    work.preparation.join(60)
    work.add(1)
    assert work.done == [4, 5, 2, 1]


async def test_equal_prompts_are_admitted_in_the_order_they_came_in(
    tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever the tokenizer was done with first."""
    model = ScriptedModel([[ONE] * 100] + [[ONE]] * 9, tiny_tokenizer, [257], step_seconds=0.002)
    config = EngineConfig(model=model, max_sequences=1)
    delays = {"a": 0.0, "b": 0.05, "c": 0.0}

    def slow(model: object, source: Source) -> Any:
        assert isinstance(source.content, str)
        time.sleep(delays[source.content])
        yield
        return [5]

    monkeypatch.setattr("engine.preparation.encode", slow)
    async with AsyncEngine(config) as engine:
        order: list[str] = []

        async def finish(text: str) -> None:
            await streams[text].result()
            order.append(text)

        async with standing(engine, 4):
            busy = engine.generate([5])
            streams = {text: engine.generate(text, SamplingParams(max_tokens=5)) for text in "abc"}
        await asyncio.gather(*map(finish, streams))
        await busy.result()
    assert order == ["a", "b", "c"]
