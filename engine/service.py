"""Serving a loaded model: requests taken in, and computed step by step. On the engine thread alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import NamedTuple

from .bandwidth import Peak, PeakBandwidth
from .blocks import BlockPool
from .chunking import ChunkBudget
from .commands import Outcome, Prepared, Submit
from .config import EngineConfig
from .faults import of_request
from .live_requests import LiveRequests
from .metrics import EngineMetrics
from .model import LoadedModel
from .prompt import refusal
from .request import Request
from .runner import Flight
from .scheduler import Scheduler
from .snapshot import State, take_snapshot
from .speculative.acceptance import accept
from .speculative.speculation import DraftFigures, Speculation
from .step_plan import StepPlan
from .types import EngineError, EngineSnapshot

log = logging.getLogger(__name__)


class Flying(NamedTuple):
    """A step that was launched. requests: of the plan's runs. started: when it was planned."""

    plan: StepPlan
    requests: list[Request]
    flight: Flight
    started: float


class Service:
    """A loaded model with everything that serving it needs; made once, whole.

    emit: takes each request's events, with its number; send: passes on what was emitted.

    Where a device computes beside this thread, the next step is planned while one runs, as far as it is clear
    by then, and comes before the news of the last one: what was sampled is made text, and sent, meanwhile. So
    a reply that a stop string ends may be in one more step; what that brings is not told.

    What a request does by itself is guarded. Anything else that fails leaves blocks and queues in an unknown
    state; it is raised, and `LiveRequests.end` then touches neither.
    """

    def __init__(
        self,
        config: EngineConfig,
        model: LoadedModel,
        emit: Callable[[int, Outcome], None],
        send: Callable[[Service], None],
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
        self.requests = LiveRequests(self.metrics, self.scheduler.remove)
        self._emit = emit
        self._send = send
        self._ahead: StepPlan | None = None
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
        if full:  # what has ended, and has only to be told, waits for nothing
            full = sum(other.done is None for other in self.requests.values()) >= self._most
        self.requests[request.id] = request
        self.requests.changed = True
        if full:
            message = f"{self._max_waiting} requests are waiting already (max_waiting); try again later"
            self.requests.finish(request, "error", EngineError("queue_full", message))
        return not full

    def prepared(self, result: Prepared) -> None:
        """Queue a request for its first step, or end it if it can't be served."""
        id, prompt, error, constraint = result
        request = self.requests.get(id)
        if request is None or request.sequence is not None:
            return
        try:
            error = error or refusal(self.model, prompt, request.params, request.score)
            if error is None:
                request.start(prompt, constraint)
        except Exception as fault:
            log.exception("request %d could not be started", id)
            error = of_request(fault)
        if error is not None:
            self.requests.finish(request, "error", error)
        else:
            self.scheduler.add(request.live)
            self.requests.changed = True

    def abort(self, id: int) -> None:
        """End a request, if it has not ended."""
        if id in self.requests:
            self.requests.finish(self.requests[id], "aborted")

    def step(self) -> None:
        """One step: draft, plan, launch; accept, commit, tell, and end what is done."""
        flying = self._launch() if self.busy else None
        if flying is not None and not flying.flight.computed:
            self._look_ahead(flying.plan)
        if flying is None or not flying.flight.computed:
            self._tell_all()
        if flying is not None:
            self._land(flying)
            if flying.flight.computed or not self.busy:
                self._tell_all()

    def _launch(self) -> Flying | None:
        """Begin the next step; None: there is none."""
        started = time.perf_counter()
        self._draft()
        plan, self._ahead = self._ahead, None
        prepared = plan is not None and self.scheduler.holds(plan)
        if plan is None or not prepared:
            plan = self.scheduler.plan()
        for sequence in plan.exhausted:
            self.requests.finish(self.requests[sequence.id], "capacity")
        if not plan.runs:
            return None
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
            flight = self.model.runner.launch(plan, logits=wants_logits, prepared=prepared)
        except MemoryError as error:
            self._no_room(plan, error)
            return None
        self.requests.held = True
        return Flying(plan, requests, flight, started)

    def _look_ahead(self, plan: StepPlan) -> None:
        """While a step runs: plan the next one and lay it out, if what it will be is clear already."""
        self._ahead = self.scheduler.ahead(plan)
        if self._ahead is not None:
            self.model.runner.prepare(self._ahead)

    def _land(self, flying: Flying) -> None:
        """Wait for a step, and have its requests take in what it brought."""
        plan, requests, flight, started = flying
        try:
            result = flight.result()
        except MemoryError as error:
            self._no_room(plan, error)
            self.requests.let_go()
            return
        finally:
            self.requests.held = False
        accepted = accept(plan, result.tokens)
        self.scheduler.commit(plan, accepted)
        now = time.perf_counter()
        if self.speculation is not None:
            self.speculation.observe(plan, accepted, now - started)
        for run, request, tokens in zip(plan.runs, requests, accepted, strict=True):
            if run.sequence.constraint is not None:
                self.requests.follow(request, tokens)
        self._account(plan, accepted, result.expert_bytes, now, now - started)
        logits = repeat(None) if result.logits is None else plan.by_run(result.logits)
        for request, run, tokens, share in zip(requests, plan.runs, accepted, logits, strict=False):
            # Tokens without a choice have none: a request that does not want logits must not see its rows.
            self.requests.take(request, run, tokens, share if request.wants_logits else None, now)
        self.requests.let_go()

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
        live = [request for request in self.requests.values() if request.done is None]
        started = {request.id for request in live if request.sequence is not None}
        queued = {sequence.id for sequence in (*self.scheduler.running, *self.scheduler.waiting)}
        assert started == queued, "a request is not in the scheduler's queues, or is there without being live"

    def snapshot(self, state: State) -> EngineSnapshot:
        """The picture for other threads."""
        self.requests.changed = False
        requests = list(self.requests.values())
        drafts = DraftFigures() if self.speculation is None else self.speculation.figures
        return take_snapshot(state, self.model, self.scheduler, self.metrics, requests, self._peak, drafts)

    def _draft(self) -> None:
        """Guess, if that is wanted, how the replies that are being decoded go on."""
        if self.speculation is not None:
            decoding = [sequence for sequence in self.scheduler.running if sequence.decoding]
            self.speculation.draft(decoding, lambda sequence: self.requests[sequence.id].room)

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
        request = self.requests.get(plan.runs[0].sequence.id)
        if plan.tokens == 1 and request is not None:
            message = f"{error}; close other programs, or start with a smaller kv_memory"
            self.requests.finish(request, "error", EngineError("out_of_memory", message))

    def _tell_all(self) -> None:
        """Make text of what was taken in, and send it, whatever else there is to be sent."""
        self.requests.tell_all()
        self._send(self)
