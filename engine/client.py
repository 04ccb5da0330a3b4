"""The asyncio side of the engine. Prompts are tokenized on a thread of their own, never on the event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from kernels.interface import Float32

from .bandwidth import Peak
from .commands import Abort, Call, Stop, Submit
from .config import EngineConfig
from .core import EngineCore
from .logprobs import Scores
from .model import LoadedModel
from .outbox import Outbox, call_into, wake
from .prompt import Prompt, checked, checked_variables, encode
from .request import Request
from .sampling import derive_seed, random_seed
from .stream import Mailbox, ResponseStream
from .types import EngineError, EngineSnapshot, SamplingParams

SHUTDOWN_SECONDS = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What an application wants to know of the loaded model.

    defaults: sampling settings its files ask for. notes: sentences about what is not as one would expect.
    place: what its peak bandwidth depends on: processor, memory, threads, size of the weights; "" if it has
    none.
    """

    name: str
    vocabulary: int
    context_length: int
    has_chat_template: bool
    defaults: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    place: str = ""


class AsyncEngine:
    """An inference engine on a thread of its own, used from one event loop.

    `async with` loads the model and raises EngineError if that fails. At the end every live request gets its
    final event (aborted), and the memory is freed.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._outbox = Outbox(partial(self._notify, wake))
        self._core = EngineCore(config, self._on_ready, self._flush)
        self._ids = itertools.count(1)
        self._prepare = ThreadPoolExecutor(1, thread_name_prefix="prompt")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._model: LoadedModel | None = None

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("an engine is opened once; make a new AsyncEngine")
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[LoadedModel] = self._loop.create_future()
        self._outbox.start()
        self._core.start()
        try:
            self._model = await self._ready
        except BaseException:
            await self._shut_down()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._shut_down()

    async def _shut_down(self) -> None:
        self._prepare.shutdown(wait=False)
        self._core.post(Stop())
        if await asyncio.to_thread(self._core.join, SHUTDOWN_SECONDS):
            await asyncio.to_thread(self._outbox.close)

    @property
    def info(self) -> ModelInfo:
        """The loaded model."""
        model = self._loaded()
        return ModelInfo(
            model.name,
            model.vocabulary,
            model.context_length,
            model.chat_template is not None,
            dict(model.defaults),
            model.notes,
            model.place,
        )

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

    def snapshot(self) -> EngineSnapshot:
        """What the engine is doing; from any thread, at no cost to the step."""
        return self._core.snapshot

    async def tokenize(
        self, prompt: Prompt, *, continue_final: bool = False, template_vars: Mapping[str, Any] | None = None
    ) -> list[int]:
        """The prompt ids that `generate` would use. Raises EngineError (template, engine_failed)."""
        variables = checked_variables(template_vars)
        ids = partial(encode, self._loaded(), checked(prompt), continue_final, variables)
        try:
            encoded = asyncio.get_running_loop().run_in_executor(self._prepare, ids)
        except RuntimeError:  # the executor is shut down: so is the engine
            raise _closed() from None
        return await encoded

    async def score(self, ids: Sequence[int], *, chosen: bool = False) -> Float32:
        """Log-probabilities of a text's tokens through the normal batched path, float32.

        [len(ids), vocabulary]: row i is the distribution of the token after ids[: i + 1]. chosen: [len(ids)],
        the log-probability of ids[i] given ids[:i]; NaN for the first. Raises EngineError.
        """
        tokens = checked(ids)
        if not isinstance(tokens, list):
            raise TypeError("score takes a list of token ids")
        scores = Scores(tokens, self._loaded().vocabulary, chosen=chosen)
        async with self._submit(tokens, SamplingParams(temperature=0), 0, False, None, scores) as stream:
            finished = await stream.result()
        if finished.error is not None:
            raise finished.error
        if finished.reason == "aborted":
            raise EngineError("engine_failed", "the engine was closed before the text was scored")
        return scores.values

    def focus(self, stream: ResponseStream | None) -> None:
        """Let this conversation win ties for prefill and admission."""
        request = None if stream is None else stream.id

        def set_focus() -> None:
            self._core.scheduler.focused = request

        self._core.post(Call(set_focus))

    async def bandwidth_peak(self) -> float | None:
        """The best peak read bandwidth known in GB/s, measured anew if nothing runs; None: there is none."""
        peak = await self.run_between_steps(self._core.measure_peak)
        return None if peak is None else peak.gbs

    @property
    def peak(self) -> Peak | None:
        """The best peak known, from any thread; nothing is measured."""
        return self._core.peak.best

    def tell_peak(self, peak: Peak) -> None:
        """A peak that was measured earlier, at the same `ModelInfo.place`."""
        self._core.post(Call(partial(self._core.peak.tell, peak)))

    async def run_between_steps(self, function: Callable[[], T]) -> T:
        """Run a short function on the engine thread and return what it returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = function()
            except BaseException as error:
                call_into(loop, _settle, future, None, error)
            else:
                call_into(loop, _settle, future, result, None)

        if not self._core.post(Call(run)):
            raise _closed()
        return await future

    def _loaded(self) -> LoadedModel:
        if self._model is None:
            raise RuntimeError("the engine has no model yet: use it inside `async with`")
        return self._model

    def _submit(
        self,
        prompt: Prompt,
        params: SamplingParams,
        seed: int,
        continue_final: bool,
        template_vars: Mapping[str, Any] | None,
        scores: Scores | None = None,
    ) -> ResponseStream:
        content, variables = checked(prompt), checked_variables(template_vars)
        submitted = time.perf_counter()
        ids = partial(encode, self._loaded(), content, continue_final, variables)
        mailbox = Mailbox()
        request = Request(
            next(self._ids), params, seed, submitted, partial(self._outbox.emit, mailbox), scores
        )
        try:
            self._prepare.submit(self._hand_over, request, ids)
        except RuntimeError:  # the executor is shut down: so is the engine
            request.finish("error", _closed())
            self._outbox.send()
        return ResponseStream(request.id, mailbox, partial(_abort, self._core, request))

    def _hand_over(self, request: Request, ids: Callable[[], list[int]]) -> None:
        """Tokenize a prompt and give the request to the engine thread; on the prompt thread."""
        try:
            command = Submit(request, ids())
        except EngineError as error:
            command = Submit(request, [], error)
        except Exception as error:
            command = Submit(
                request, [], EngineError("template", f"the prompt could not be prepared: {error}")
            )
        if not self._core.post(command):  # the engine was closed since the request was made
            request.finish("aborted")
            self._outbox.send()

    def _on_ready(self, outcome: LoadedModel | EngineError) -> None:
        error = outcome if isinstance(outcome, EngineError) else None
        model = None if isinstance(outcome, EngineError) else outcome
        self._notify(_settle, self._ready, model, error)

    def _flush(self) -> None:
        """Send what a step emitted. Where no reader waits, nobody else notices that the loop is closed."""
        self._outbox.send()
        if self._loop is not None and self._loop.is_closed():
            self._core.post(Stop())

    def _notify(self, function: Callable[..., None], *arguments: Any) -> bool:
        """Call into the event loop; False: it is closed, nobody listens any more, and the engine ends."""
        assert self._loop is not None, "the engine was entered"
        if call_into(self._loop, function, *arguments):
            return True
        self._core.post(Stop())
        return False


def _resolved(params: SamplingParams | None) -> tuple[SamplingParams, int]:
    """The settings, and the seed in use: theirs, or one drawn now."""
    params = SamplingParams() if params is None else params
    if not isinstance(params, SamplingParams):
        raise TypeError(f"params must be SamplingParams, not {type(params).__name__}")
    return params, random_seed() if params.seed is None else params.seed


def _closed() -> EngineError:
    return EngineError("engine_failed", "the engine is closed")


def _abort(core: EngineCore, request: Request) -> None:
    """Ask for the end of a request. Knows no stream, so that a dropped stream can be collected."""
    request.cancelled = True
    core.post(Abort(request))


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
