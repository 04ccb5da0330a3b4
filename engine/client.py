"""The asyncio side of the engine: commands go out, events come back by number."""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from kernels.arrays import Float32

from .bandwidth import Peak
from .commands import (
    Abort,
    Answer,
    Audit,
    Command,
    Focus,
    MeasurePeak,
    ScoreKind,
    Stop,
    Submit,
    TellPeak,
    Tokenize,
)
from .config import EngineConfig
from .core import OPENED, EngineCore
from .faults import of_thread
from .forks import check_not_forked
from .outbox import Outbox, call_into, wake
from .prompt import Prompt, source_of
from .protocol import ModelInfo
from .sampler import derive_seed
from .sampling_params import SamplingParams
from .stream import Mailbox, ResponseStream
from .types import EngineError, EngineSnapshot, Finished, Timings, Usage, shown

SHUTDOWN_SECONDS = 30.0
JOIN_SECONDS = 0.2

_ENDED = -1
"""Number of the answer that says the engine thread has ended. Calls have the numbers below it, replies those
from 1 on.
"""


class AsyncEngine:
    """An inference engine on a thread of its own, used from one event loop; others get a RuntimeError.

    `async with` loads the model and raises EngineError if that fails. At the end every live request gets its
    final event (aborted), and the memory is freed. An engine that is dropped with all of its streams, or
    whose event loop is closed or dropped, ends as well.
    """

    def __init__(self, config: EngineConfig, *, chat: bool = False, constrained: bool = False) -> None:
        """chat: it is to be given messages; a model without a chat template is refused at once. constrained:
        replies are to keep to schemas or grammars, so the first of them need not wait for what these take.
        """
        self.config = config
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._replies = itertools.count(1)
        self._calls = itertools.count(_ENDED - 1, -1)
        self._info: ModelInfo | None = None
        link = _Link()
        self._outbox = Outbox(link.forward, link.check)
        self._core = EngineCore(config, self._outbox, link.listening, chat, constrained)
        self._link = link
        self._finalizers: list[weakref.finalize[..., Any]] = []
        self._ended = self._outbox.open(_ENDED, Answer())

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("an engine is opened once; make a new AsyncEngine")
        check_not_forked()
        loop = asyncio.get_running_loop()
        self._loop = self._link.loop = weakref.ref(loop)
        stop = partial(self._core.commands.put, Stop())  # knows neither the engine nor the loop
        self._finalizers = [weakref.finalize(whose, stop) for whose in (self, loop)]
        for finalizer in self._finalizers:
            finalizer.atexit = False
        opened = self._outbox.open(OPENED, Answer())
        try:
            self._outbox.start()
            self._core.start()
        except RuntimeError as error:
            self._core.post(Stop())
            self._outbox.end(of_thread(error))
        try:
            self._info = _value(await opened.get())
        except BaseException as error:
            await self._leave(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        if isinstance(error, GeneratorExit):  # of a task that is dropped with its loop: it can't wait
            self._core.post(Stop())
        else:
            await self.close()

    async def close(self) -> None:
        """End every live request (aborted) and free the memory; closed already, nothing happens."""
        if self._loop is None:
            return
        self._core.post(Stop())
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await self._ended.get()
        except TimeoutError:
            message = f"the engine thread did not end in {SHUTDOWN_SECONDS:g} s"
            self._outbox.end(EngineError("engine_failed", message))
        for finalizer in self._finalizers:
            finalizer.detach()
        self._core.join(JOIN_SECONDS)
        self._outbox.join(JOIN_SECONDS)

    @property
    def info(self) -> ModelInfo:
        """The loaded model."""
        self._check_opened()
        assert self._info is not None, "it was opened"
        return self._info

    def snapshot(self) -> EngineSnapshot:
        """What the engine is doing; from any thread, at no cost to the step."""
        return self._core.snapshot

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        continue_final: bool = False,
        template_vars: Mapping[str, Any] | None = None,
    ) -> ResponseStream:
        """Start a request. TypeError: wrong types; everything else ends the stream with an error event.

        continue_final: go on with the last (assistant) message. template_vars: given to the chat template.
        """
        params, seed = _resolved(params)
        return self._submit(prompt, params, seed, continue_final, template_vars)

    def generate_many(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        n: int,
        continue_final: bool = False,
        template_vars: Mapping[str, Any] | None = None,
    ) -> list[ResponseStream]:
        """Start n replies to one prompt, whose blocks they share; stream i has seed derive_seed(seed, i)."""
        params, seed = _resolved(params)
        return [
            self._submit(prompt, params, derive_seed(seed, index), continue_final, template_vars)
            for index in range(n)
        ]

    async def tokenize(
        self, prompt: Prompt, *, continue_final: bool = False, template_vars: Mapping[str, Any] | None = None
    ) -> list[int]:
        """The prompt ids that `generate` would use.

        Raises EngineError: template, engine_failed; prompt_too_long for a text so far beyond the context that
        it is not tokenized to its end.
        """
        source = source_of(prompt, continue_final, template_vars)
        self._check_opened()
        ids: list[int] = await self._call(lambda id: Tokenize(id, source))
        return ids

    async def prepare(self, params: SamplingParams) -> None:
        """Make ready what replies with these settings keep to: the first of them then need not wait for it.

        Raises EngineError: grammar, engine_failed.
        """
        self._check_opened()
        await self._call(lambda id: Tokenize(id, source_of(""), params))

    async def score(self, ids: Sequence[int], *, chosen: bool = False) -> Float32:
        """Log-probabilities of a text's tokens through the normal batched path, float32.

        [len(ids), vocabulary]: row i is the distribution of the token after ids[: i + 1]. chosen: [len(ids)],
        the log-probability of ids[i] given ids[:i]; NaN for the first. Raises EngineError.
        """
        source = source_of(ids)
        if not isinstance(source.content, list):
            raise TypeError("score takes a list of token ids")
        self._check_opened()
        kind: ScoreKind = "chosen" if chosen else "all"
        greedy, now = SamplingParams(temperature=0), time.perf_counter()
        scores: Float32 = await self._call(
            lambda id: Submit(id, source, greedy, 0, now, kind), next(self._replies)
        )
        return scores

    def focus(self, stream: ResponseStream | None) -> None:
        """Let this conversation win ties for prefill and admission; None: no one does."""
        if not isinstance(stream, ResponseStream | None):
            raise TypeError(f"focus takes a reply's stream or None, not {shown(stream)}")
        self._core.post(Focus(None if stream is None else stream.id))

    async def bandwidth_peak(self) -> float | None:
        """The best peak read bandwidth known in GB/s, measured anew if nothing runs; None: there is none."""
        peak: Peak | None = await self._call(MeasurePeak)
        return None if peak is None else peak.gbs

    @property
    def peak(self) -> Peak | None:
        """The best peak known, from any thread; nothing is measured."""
        return self._core.peak.best

    def tell_peak(self, peak: Peak) -> None:
        """A peak that was measured earlier, at the same `ModelInfo.place`."""
        self._core.post(TellPeak(peak))

    async def audit(self) -> None:
        """Check the bookkeeping of the KV cache between two steps; for tests. Raises EngineError."""
        await self._call(Audit)

    def _check_opened(self) -> None:
        if self._info is None:
            raise RuntimeError("the engine has no model yet: use it inside `async with`")

    async def _call(self, command: Callable[[int], Command], id: int | None = None) -> Any:
        """What the engine answers to a command, once it is there. Raises EngineError."""
        if self._loop is None:
            self._check_opened()  # nobody would ever answer
        self._link.check()  # before anything is asked, which may be answered sooner than it is waited for
        id = next(self._calls) if id is None else id
        mailbox = self._outbox.open(id, Answer())
        self._core.post(command(id))
        try:
            answer = await mailbox.get()
        except BaseException:  # cancelled, or dropped with its loop: nobody waits any more
            self._outbox.forget(id)
            self._core.post(Abort(id))
            raise
        return _value(answer)

    def _submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        seed: int,
        continue_final: bool,
        template_vars: Mapping[str, Any] | None,
    ) -> ResponseStream:
        source, submitted = source_of(prompt, continue_final, template_vars), time.perf_counter()
        self._check_opened()
        id = next(self._replies)
        mailbox = self._outbox.open(id, Finished("error", "", (), Usage(), Timings(), None, seed))
        self._core.post(Submit(id, source, params, seed, submitted))
        abort = partial(self._core.commands.put, Abort(id))  # knows neither stream nor engine
        return ResponseStream(id, mailbox, abort, self)


class _Link:
    """The way from the engine's threads to the event loop, which it does not keep alive."""

    def __init__(self) -> None:
        self.loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def listening(self) -> bool:
        """Whether the loop can still run."""
        loop = None if self.loop is None else self.loop()
        return loop is not None and not loop.is_closed()

    def check(self) -> None:
        """RuntimeError: whoever waits here would wait for ever, as only readers on the loop are woken."""
        if self.loop is None or asyncio.get_running_loop() is not self.loop():
            raise RuntimeError(
                "an engine is used in the event loop that it was opened in, and this is another one; "
                "asyncio.run_coroutine_threadsafe has a coroutine run there"
            )

    def forward(self, mailboxes: list[Mailbox]) -> None:
        """Have the readers of these mailboxes woken, if there is a loop."""
        loop = None if self.loop is None else self.loop()
        if loop is not None:
            call_into(loop, wake, mailboxes)


def _resolved(params: SamplingParams | None) -> tuple[SamplingParams, int]:
    """The settings, and the seed in use: theirs, or one drawn now."""
    params = SamplingParams() if params is None else params
    if not isinstance(params, SamplingParams):
        raise TypeError(f"params must be SamplingParams, not {type(params).__name__}")
    params = params.seeded()
    assert params.seed is not None
    return params, params.seed


def _value(answer: object) -> Any:
    assert isinstance(answer, Answer), "a call is answered once"
    if answer.error is not None:
        raise EngineError(answer.error.code, answer.error.message)  # an event stays as it is
    return answer.value
