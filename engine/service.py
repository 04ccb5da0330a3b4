"""The requests of a loaded model: taken in, computed step by step, ended. On the engine thread alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from itertools import repeat

from kernels.interface import Float32

from .bandwidth import Peak, PeakBandwidth
from .blocks import BlockPool
from .chunking import ChunkBudget
from .commands import Outcome, Prepared, Submit
from .config import EngineConfig
from .logprobs import MOST_SCORES, scores_bytes
from .metrics import EngineMetrics
from .model import LoadedModel
from .prompt import too_long
from .request import Request, own_fault
from .sampler import check_params
from .scheduler import Scheduler
from .snapshot import State, take_snapshot
from .speculative.acceptance import accept
from .speculative.speculation import DraftFigures, Speculation
from .step_plan import Run, StepPlan
from .types import EngineError, EngineSnapshot, FinishReason

log = logging.getLogger(__name__)


class Service:
    """A loaded model with everything that serving it needs; made once, whole.

    emit: takes each request's events, with its number. changed: a request began or ended since the last
    snapshot.

    What a request does by itself, from its prompt to its text, is guarded: if it fails, that request ends.
    Anything else that fails leaves blocks and queues in an unknown state; it is raised, and `end` then
    touches neither.
    """

    def __init__(
        self,
        config: EngineConfig,
        model: LoadedModel,
        emit: Callable[[int, Outcome], None],
        peak: PeakBandwidth,
    ) -> None:
        self.model = model
        self.pool = BlockPool(model.blocks, model.block_size, prefix_cache=config.prefix_cache)
        fixed = None if config.prefill_chunk == "auto" else config.prefill_chunk
        self.scheduler = Scheduler(
            self.pool,
            ChunkBudget(fixed, config.max_batch_tokens),
            max_batch_tokens=config.max_batch_tokens,
            max_sequences=config.sequences,
        )
        self.speculation: Speculation | None = None
        if model.drafter is not None:
            self.speculation = Speculation(model.drafter, config.draft_window, config.sequences)
        self.metrics = EngineMetrics()
        self.requests: dict[int, Request] = {}
        self.changed = False
        self._emit = emit
        self._most = config.sequences + config.max_waiting
        self._max_waiting = config.max_waiting
        self._peak = peak

    @property
    def busy(self) -> bool:
        """Whether there is something to compute: a request whose prompt is prepared."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def submit(self, command: Submit) -> bool:
        """Take in a request; False if it was refused at once. Its prompt's ids come by `prepared`."""
        request = Request(command, self.model, partial(self._emit, command.id))
        full = len(self.requests) >= self._most
        self.requests[request.id] = request
        self.changed = True
        if full:
            message = f"{self._max_waiting} requests are waiting already (max_waiting); try again later"
            self._finish(request, "error", EngineError("queue_full", message))
        return not full

    def prepared(self, result: Prepared) -> None:
        """Queue a request for its first step, or end it if it can't be served."""
        id, prompt, error, constraint = result
        request = self.requests.get(id)
        if request is None or request.sequence is not None:
            return
        try:
            error = error or self._refusal(request, prompt)
            if error is None:
                request.start(prompt, constraint)
        except Exception as fault:
            log.exception("request %d could not be started", id)
            error = own_fault(fault)
        if error is not None:
            self._finish(request, "error", error)
        else:
            self.scheduler.add(request.live)
            self.changed = True

    def abort(self, id: int) -> None:
        """End a request, if it has not ended."""
        if id in self.requests:
            self._finish(self.requests[id], "aborted")

    def step(self) -> None:
        """One step: draft, plan, run, accept, commit, deliver, and end what is done."""
        if not self.busy:
            return
        started = time.perf_counter()
        self._draft()
        plan = self.scheduler.plan()
        for sequence in plan.exhausted:
            self._finish(self.requests[sequence.id], "capacity")
        if not plan.runs:
            return
        requests = [self.requests[run.sequence.id] for run in plan.runs]
        for request in requests:
            if request.scheduled is None:
                request.scheduled = started
        wants_logits = any(
            run.samples and request.wants_logits for run, request in zip(plan.runs, requests, strict=True)
        )
        try:
            if self.speculation is not None:
                self.speculation.guess(plan)
            result = self.model.runner.run(plan, logits=wants_logits)
        except MemoryError as error:
            self._no_room(plan, error)
            return
        accepted = accept(plan, result.tokens)
        self.scheduler.commit(plan, accepted)
        now = time.perf_counter()
        if self.speculation is not None:
            self.speculation.observe(plan, accepted, now - started)
        self._keep_to(plan, accepted)
        self._account(plan, accepted, result.expert_bytes, now, now - started)
        logits = repeat(None) if result.logits is None else plan.by_run(result.logits)
        for request, run, tokens, share in zip(requests, plan.runs, accepted, logits, strict=False):
            # Tokens without a choice have none: a request that does not want logits must not see its rows.
            self._deliver(request, run, tokens, share if request.wants_logits else None, now)

    def end(self, reason: FinishReason, error: EngineError | None) -> None:
        """The thread ends, whatever state things are in: every request gets its final event, nothing else."""
        for request in list(self.requests.values()):
            try:
                request.finish(reason, error, self._decoded)
            except BaseException:  # the outbox has a final event for it
                log.exception("request %d could not be ended in order", request.id)
            del self.requests[request.id]

    def measure_peak(self) -> Peak | None:
        """The peak read bandwidth, measured anew if nothing runs."""
        if not self.requests:
            self._peak.measure(self.model.runner)
        self._peak.achieved(self.metrics.best_alone)
        return self._peak.best

    def audit(self) -> None:
        """Check every invariant of blocks and tables; AssertionError says what broke."""
        tables = self.scheduler.tables
        self.pool.audit(tables)
        assert bool(self.pool.used) == any(table.blocks for table in tables), "a block is used by nobody"
        started = {id for id, request in self.requests.items() if request.sequence is not None}
        queued = {sequence.id for sequence in (*self.scheduler.running, *self.scheduler.waiting)}
        assert started == queued, "a request is not in the scheduler's queues, or is there without being live"

    def snapshot(self, state: State) -> EngineSnapshot:
        """The picture for other threads."""
        self.changed = False
        requests = list(self.requests.values())
        drafts = DraftFigures() if self.speculation is None else self.speculation.figures
        return take_snapshot(state, self.model, self.scheduler, self.metrics, requests, self._peak, drafts)

    @property
    def _decoded(self) -> tuple[int, float]:
        return self.metrics.decode_bytes, self.metrics.decode_seconds

    def _refusal(self, request: Request, prompt: list[int]) -> EngineError | None:
        """Why a prompt can't be served, with the numbers."""
        model, room = self.model, 0 if request.score is not None else 1
        if not prompt:
            return EngineError("empty_prompt", "the prompt is empty: there is nothing to answer")
        if len(prompt) + room > model.context_length:
            return too_long(model, str(len(prompt)))
        capacity = model.blocks * model.block_size
        if len(prompt) > capacity:
            return EngineError(
                "never_fits",
                f"the prompt has {len(prompt)} tokens, but the whole KV cache holds {capacity} tokens "
                f"({model.blocks} blocks of {model.block_size}); give it more with kv_memory",
            )
        if request.score is not None:
            size = scores_bytes(len(prompt), model.vocabulary, request.score)
            if size > MOST_SCORES:
                return EngineError(
                    "never_fits",
                    f"scores of {len(prompt)} tokens for {model.vocabulary} ids take {size} bytes, and "
                    f"{MOST_SCORES} are allowed; ask for those of the text's own tokens (chosen=True)",
                )
        bad = next((token for token in prompt if not 0 <= token < model.vocabulary), None)
        if bad is not None:
            return EngineError("invalid_request", f"token id {bad} is outside 0 to {model.vocabulary - 1}")
        try:
            check_params(request.params, model.vocabulary)
        except ValueError as error:
            return EngineError("invalid_request", str(error))
        return None

    def _draft(self) -> None:
        """Guess, if that is wanted, how the replies that are being decoded go on."""
        if self.speculation is not None:
            decoding = [sequence for sequence in self.scheduler.running if sequence.decoding]
            self.speculation.draft(decoding, lambda sequence: self.requests[sequence.id].room)

    def _keep_to(self, plan: StepPlan, accepted: list[list[int]]) -> None:
        """Tell the replies' constraints what came, and go on with what has to follow: that takes no step."""
        for run, tokens in zip(plan.runs, accepted, strict=True):
            sequence = run.sequence
            if sequence.constraint is None or not tokens:
                continue
            sequence.constraint.advance(tokens)
            request = self.requests[sequence.id]
            if request.wants_logits:
                continue  # those of each token
            for token in sequence.constraint.forced(request.room - len(tokens)):
                sequence.append(token)
                tokens.append(token)

    def _account(
        self, plan: StepPlan, accepted: list[list[int]], expert_bytes: int, now: float, seconds: float
    ) -> None:
        traffic = self.model.runner.traffic.step_bytes(plan) + expert_bytes
        if self.speculation is not None:
            traffic += self.speculation.traffic
        tokens, prefill = sum(map(len, accepted)), plan.prefill_tokens
        self.metrics.step(now, seconds, len(plan.runs), tokens, traffic, decode=prefill == 0)
        self.scheduler.chunks.observe(seconds, prefill)

    def _no_room(self, plan: StepPlan, error: MemoryError) -> None:
        """A step does not fit into the memory, which other programs use too: go on with smaller ones.
        A request that does not even get a step for one token ends.
        """
        level = logging.DEBUG if self.scheduler.is_narrow else logging.WARNING  # once for each time of need
        log.log(level, "a step of %d tokens did not fit: %s", plan.tokens, error)
        self.scheduler.withdraw(plan, max(1, plan.tokens // 2))
        if plan.tokens == 1:
            message = f"{error}; close other programs, or start with a smaller kv_memory"
            self._finish(
                self.requests[plan.runs[0].sequence.id], "error", EngineError("out_of_memory", message)
            )

    def _deliver(
        self, request: Request, run: Run, tokens: list[int], logits: Float32 | None, now: float
    ) -> None:
        """Give a request what its run brought, and end it if that was all."""
        first = not request.token_times
        error: EngineError | None = None
        try:
            reason = request.deliver(run, tokens, logits, now)
        except Exception as fault:
            if not isinstance(fault, EngineError):
                log.exception("request %d failed", request.id)
            reason, error = "error", own_fault(fault)
        if first and request.token_times:
            request.decode_mark = self._decoded
            self.metrics.first_token(request.submitted, request.scheduled, now)
        if reason is not None:
            self._finish(request, reason, error)

    def _finish(self, request: Request, reason: FinishReason, error: EngineError | None = None) -> None:
        """End a live request: one final event, blocks back. It stays live until all of that has worked."""
        request.finish(reason, error, self._decoded)
        if request.sequence is not None:
            self.scheduler.remove(request.sequence)
        del self.requests[request.id]
        self.changed = True
