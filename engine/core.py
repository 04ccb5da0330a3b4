"""The engine thread: drains commands, plans, runs and commits steps, and hands out events.

One thread owns scheduler, blocks and device. It never waits for a consumer: events are collected and
forwarded once a step. It blocks on its command queue when there is nothing to do.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue

from kernels.interface import Float32

from .bandwidth import Peak, PeakBandwidth
from .blocks import BlockPool
from .chunking import ChunkBudget
from .commands import Abort, Call, Command, Stop, Submit
from .config import EngineConfig
from .metrics import EngineMetrics
from .model import LoadedModel, load_model
from .request import Request
from .sampling import SamplerState, check_params
from .scheduler import Row, Scheduler, StepPlan
from .sequence import Sequence
from .snapshot import State, take_snapshot
from .types import EngineError, EngineSnapshot, FinishReason

log = logging.getLogger(__name__)

PUBLISH_SECONDS = 0.05
"""A busy engine publishes a snapshot this often; besides, when a request begins or ends and when it goes
idle.
"""


class EngineCore:
    """Owner of the engine thread.

    on_ready: called once on the thread with the loaded model or the reason why there is none. flush: called
    after events were emitted, at most once a step, to forward them.
    """

    def __init__(
        self,
        config: EngineConfig,
        on_ready: Callable[[LoadedModel | EngineError], None],
        flush: Callable[[], None],
    ) -> None:
        self.config = config
        self.snapshot = EngineSnapshot("loading", "", False, str(config.model))
        self._on_ready = on_ready
        self._flush = flush
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._lock = threading.RLock()  # a stream collected inside `post` posts its abort
        self._closed = False
        self._requests: dict[int, Request] = {}
        self._failure: EngineError | None = None
        self.peak = PeakBandwidth()
        self._published = 0.0
        self._changed = False  # a request began or ended since the last snapshot
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread; it loads the model first."""
        self._thread.start()

    def post(self, command: Command) -> bool:
        """Queue a command from any thread; False if the thread has ended and nobody will read it."""
        with self._lock:
            if self._closed:
                return False
            self._commands.put(command)
            return True

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end, for at most `timeout` seconds; whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def measure_peak(self) -> Peak | None:
        """The peak read bandwidth, measured anew if nothing runs; on the engine thread, between steps."""
        if not self._requests:
            self.peak.measure(self.model.runner)
        self.peak.achieved(self.metrics.best_alone)
        return self.peak.best

    def _run(self) -> None:
        try:
            self.model = load_model(self.config)
        except Exception as error:
            if not isinstance(error, EngineError):
                log.exception("loading %s failed", self.config.model)
                error = EngineError("model_invalid", f"{self.config.model}: {type(error).__name__}: {error}")
            self._close("failed", error)
            self._on_ready(error)
            return
        config, model = self.config, self.model
        self.pool = BlockPool(model.blocks, model.block_size, prefix_cache=config.prefix_cache)
        fixed = None if config.prefill_chunk == "auto" else config.prefill_chunk
        self.scheduler = Scheduler(
            self.pool,
            ChunkBudget(fixed, config.max_batch_tokens),
            max_batch_tokens=config.max_batch_tokens,
            max_sequences=config.sequences,
        )
        self.metrics = EngineMetrics()
        self._publish(self._state)
        self._on_ready(model)
        while self._drain():
            try:
                self._step()
            except Exception as error:
                log.exception("engine step failed")
                self._fail(error)
            if self._changed or time.perf_counter() - self._published > PUBLISH_SECONDS:
                self.metrics.look_around()
                self._publish(self._state)
            self._flush()
        self._close("closed", None)
        model.runner.close()

    def _drain(self) -> bool:
        """Carry out queued commands; waits for one when there is nothing to compute. False: stop."""
        if not self._requests:
            self.metrics.idle()
            self._publish(self._state)
            if not self._handle(self._commands.get()):
                return False
        while not self._commands.empty():
            if not self._handle(self._commands.get()):
                return False
        return True

    def _handle(self, command: Command) -> bool:
        match command:
            case Submit(request, prompt, error):
                self._submit(request, prompt, error or self._failure)
            case Abort(request):
                if request.id in self._requests:
                    self._finish(request, "aborted")
            case Call(function):
                function()
            case Stop():
                return False
        return True

    def _submit(self, request: Request, prompt: list[int], error: EngineError | None) -> None:
        """Queue a request, or end it at once if it can't be served."""
        error = error or self._refusal(request, prompt)
        self._requests[request.id] = request
        self._changed = True
        if error is not None:
            self._finish(request, "error", error)
        elif request.cancelled:
            self._finish(request, "aborted")
        else:
            sampler = SamplerState(request.params, request.seed, prompt, self.model.end_ids)
            sequence = Sequence(request.id, prompt, sampler, score=request.scores is not None)
            request.start(sequence, self.model.tokenizer, self.model.end_ids, self.model.context_length)
            self.scheduler.add(sequence)

    def _refusal(self, request: Request, prompt: list[int]) -> EngineError | None:
        """Why a prompt can't be served, with the numbers."""
        model, room = self.model, 0 if request.scores is not None else 1
        if not prompt:
            return EngineError("empty_prompt", "the prompt is empty: there is nothing to answer")
        if len(prompt) + room > model.context_length:
            return EngineError(
                "prompt_too_long",
                f"the prompt has {len(prompt)} tokens, but the context of {model.name} holds "
                f"{model.context_length} tokens, prompt and reply together",
            )
        capacity = model.blocks * model.block_size
        if len(prompt) > capacity:
            return EngineError(
                "never_fits",
                f"the prompt has {len(prompt)} tokens, but the whole KV cache holds {capacity} tokens "
                f"({model.blocks} blocks of {model.block_size}); give it more with kv_memory",
            )
        bad = next((token for token in prompt if not 0 <= token < model.vocabulary), None)
        if bad is not None:
            return EngineError("invalid_request", f"token id {bad} is outside 0 to {model.vocabulary - 1}")
        try:
            check_params(request.params, model.vocabulary)
        except ValueError as error:
            return EngineError("invalid_request", str(error))
        if len(self._requests) >= self.config.sequences + self.config.max_waiting:
            return EngineError(
                "queue_full",
                f"{self.config.max_waiting} requests are waiting already (max_waiting); try again later",
            )
        return None

    def _step(self) -> None:
        """Plan, run and commit one step and take in its tokens."""
        if not self._requests or self._failure:
            return
        started = time.perf_counter()
        plan = self.scheduler.plan()
        for sequence in plan.exhausted:
            self._finish(self._requests[sequence.id], "capacity")
        if not plan.rows:
            return
        rows = [(row, self._requests[row.sequence.id]) for row in plan.rows]
        wants_logits = False
        for row, request in rows:
            if request.scheduled is None:
                request.scheduled = started
            if row.samples and (request.scores is not None or request.params.logprobs is not None):
                wants_logits = True
        result = self.model.runner.run(plan, logits=wants_logits)
        self.scheduler.commit(plan)
        now = time.perf_counter()
        self._account(plan, now, now - started)
        index = 0
        for row, request in rows:
            logits = None if result.logits is None else result.logits[index : index + row.samples]
            self._take(row, request, result.tokens[index : index + row.samples], logits, now)
            index += row.samples

    def _account(self, plan: StepPlan, now: float, seconds: float) -> None:
        sampled = sum(row.samples for row in plan.rows if not row.sequence.score)
        traffic = self.model.runner.traffic.step_bytes(plan)
        prefill = plan.prefill_tokens
        self.metrics.step(now, seconds, len(plan.rows), sampled, traffic, decode=prefill == 0)
        self.scheduler.chunks.observe(seconds, prefill)

    def _take(
        self, row: Row, request: Request, tokens: list[int], logits: Float32 | None, now: float
    ) -> None:
        """Give a request what its row brought."""
        if request.scores is not None:
            assert logits is not None, "a scored row asks for logits"
            request.scores.add(row.start, logits)
            if row.sequence.remaining == 0:
                self._finish(request, "stop")
            return
        for position, token in enumerate(tokens):
            if token < 0:
                message = "the model produced NaN, or every token is forbidden by the sampling settings"
                self._finish(request, "error", EngineError("bad_logits", message))
                return
            first = not request.token_times
            reason = request.accept(token, now, None if logits is None else logits[position])
            if first:
                request.decode_mark = (self.metrics.decode_bytes, self.metrics.decode_seconds)
                self.metrics.first_token(request.submitted, request.scheduled, now)
            if reason is not None:
                self._finish(request, reason)
                return
        request.emit_delta()

    def _finish(self, request: Request, reason: FinishReason, error: EngineError | None = None) -> None:
        """End a live request: blocks back, one final event."""
        del self._requests[request.id]
        if request.sequence is not None:
            self.scheduler.remove(request.sequence)
        self._changed = True
        request.finish(reason, error, (self.metrics.decode_bytes, self.metrics.decode_seconds))

    def _fail(self, error: Exception) -> None:
        """A step raised: nothing it computed can be trusted. End every request; later ones fail at once."""
        message = f"the engine stopped: {type(error).__name__}: {error}; restart termchat"
        self._failure = EngineError("engine_failed", message)
        for request in list(self._requests.values()):
            self._finish(request, "error", self._failure)

    def _close(self, state: State, error: EngineError | None) -> None:
        """The thread ends: every request that is live or still queued gets its final event."""
        with self._lock:
            self._closed = True
        reason: FinishReason = "error" if error else "aborted"
        for request in list(self._requests.values()):
            self._finish(request, reason, error)
        while not self._commands.empty():
            command = self._commands.get()
            if isinstance(command, Submit):
                command.request.finish(reason, error)
            elif isinstance(command, Call):
                command.function()
        self._publish(state)
        self._flush()

    @property
    def _state(self) -> State:
        return "failed" if self._failure else "ready"

    def _publish(self, state: State) -> None:
        """Replace the snapshot by reference, so that readers need no lock."""
        self._published = time.perf_counter()
        self._changed = False
        if not hasattr(self, "scheduler"):
            self.snapshot = replace(self.snapshot, state=state)
            return
        requests = list(self._requests.values())
        self.snapshot = take_snapshot(state, self.model, self.scheduler, self.metrics, requests, self.peak)
