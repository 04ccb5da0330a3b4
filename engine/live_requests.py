"""The requests of a loaded model that have not ended: what they take in, what they tell, and how they end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kernels.arrays import Float32

from .faults import of_request
from .metrics import EngineMetrics
from .request import Request
from .sequence import Sequence
from .step_plan import Run
from .types import EngineError, FinishReason

log = logging.getLogger(__name__)


class LiveRequests(dict[int, Request]):
    """By number. On the engine thread alone.

    changed: one began or ended since the last snapshot. held: a step runs, and who is in it keeps what its
    sequence holds until `let_go`.

    What a request does by itself, from its prompt to its text, is guarded: if it fails, that request ends.
    """

    def __init__(self, metrics: EngineMetrics, remove: Callable[[Sequence], None]) -> None:
        """remove: gives back what a sequence holds."""
        super().__init__()
        self.changed = False
        self.held = False
        self._metrics = metrics
        self._remove = remove
        self._news: dict[int, Request] = {}  # they have taken in what is still to be told
        self._leaving: list[Sequence] = []  # they ended while a step runs that they are in

    def follow(self, request: Request, tokens: list[int]) -> None:
        """Have a request add to its new tokens those that follow without a choice."""
        if request.id not in self:
            return
        try:
            request.follow(tokens)
        except Exception as fault:
            self._fail(request, fault)

    def take(self, request: Request, run: Run, tokens: list[int], logits: Float32 | None, now: float) -> None:
        """Give a request what its run brought. Of one that has ended meanwhile nobody wants to know."""
        if request.id not in self:
            return
        first = not request.token_times
        try:
            request.take(run, tokens, logits, now)
        except Exception as fault:
            self._fail(request, fault)
            return
        if first and request.token_times:
            request.decode_mark = self._decoded
            self._metrics.first_token(request.submitted, request.scheduled, now)
        if request.done is not None:
            self._leaving.append(request.live)
        if request.wants_logits:
            self._tell(request)  # they hold until the next launch
        else:
            self._news[request.id] = request

    def tell_all(self) -> None:
        """Make text of what was taken in."""
        news, self._news = self._news, {}
        for request in news.values():
            if request.id in self:
                self._tell(request)

    def _tell(self, request: Request) -> None:
        """Have a request tell its news, and end it if that was all."""
        try:
            reason = request.tell()
        except Exception as fault:
            self._fail(request, fault)
            return
        if reason is not None:
            self.finish(request, reason)

    def _fail(self, request: Request, fault: Exception) -> None:
        if not isinstance(fault, EngineError):
            log.exception("request %d failed", request.id)
        self.finish(request, "error", of_request(fault))

    def finish(self, request: Request, reason: FinishReason, error: EngineError | None = None) -> None:
        """End a live request: one final event, blocks back. It stays live until all of that has worked."""
        request.finish(reason, error, self._decoded)
        if request.sequence is not None and request.done is None:
            self._leaving.append(request.sequence)
        if not self.held:
            self.let_go()
        del self[request.id]
        self.changed = True

    def let_go(self) -> None:
        """Give back what sequences that have ended hold; the step that they were in is done."""
        while self._leaving:
            self._remove(self._leaving.pop())

    def end(self, reason: FinishReason, error: EngineError | None) -> None:
        """The thread ends, whatever state things are in: every request gets its final event, nothing else."""
        for request in list(self.values()):
            try:
                request.finish(reason, error, self._decoded)
            except BaseException:  # the outbox has a final event for it
                log.exception("request %d could not be ended in order", request.id)
            del self[request.id]

    @property
    def _decoded(self) -> tuple[int, float]:
        return self._metrics.decode_bytes, self._metrics.decode_seconds
