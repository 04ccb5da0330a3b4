"""The engine thread: loads the model, carries out commands, runs steps, and ends so that nobody waits on.

One thread owns scheduler, blocks and device. It never waits for a consumer: events are collected and
forwarded once a step. It blocks on its command queue when there is nothing to do.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue

from .bandwidth import PeakBandwidth
from .commands import (
    Abort,
    Answer,
    Audit,
    Command,
    Focus,
    MeasurePeak,
    Prepared,
    Stop,
    Submit,
    TellPeak,
    Tokenize,
)
from .config import EngineConfig
from .faults import of_call, of_engine
from .forks import FORKED, running
from .model import LoadedModel, load_model
from .outbox import Outbox
from .preparation import Preparation
from .protocol import ModelInfo
from .service import Service
from .snapshot import State
from .types import EngineError, EngineSnapshot

log = logging.getLogger(__name__)

OPENED = 0
"""Number of the answer that says what was loaded, or why nothing was."""

PUBLISH_SECONDS = 0.05
"""A busy engine publishes a snapshot this often; besides, when a request begins or ends and when it goes
idle.
"""

_TRIES = (1, 2, 3)


class _LoadStoppedError(Exception):
    """The engine is closed while its model is loaded."""


class EngineCore:
    """Owner of the engine thread.

    outbox: takes all events; the thread ends it when it ends itself, however that comes about. listening:
    whether anybody is still there to read; if not, the engine stops.
    """

    def __init__(
        self,
        config: EngineConfig,
        outbox: Outbox,
        listening: Callable[[], bool],
        chat: bool = False,
        constrained: bool = False,
    ) -> None:
        """chat, constrained: see `load_model`."""
        self.config = config
        self._chat = chat
        self._constrained = constrained
        self.snapshot = EngineSnapshot("loading", "", False, str(config.model))
        self.commands: SimpleQueue[Command] = SimpleQueue()
        self._announced: deque[Submit] = deque()  # their prompts are being prepared
        self.peak = PeakBandwidth()
        self._outbox = outbox
        self._listening = listening
        self._preparation = Preparation(self._prepared, self._give_up)
        self._model: LoadedModel | None = None
        self._service: Service | None = None
        self._loaded = False
        self._stopping = False
        self._closing = False
        self._error: EngineError | None = None
        self._fault: BaseException | None = None
        self._published = 0.0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread; it loads the model first. RuntimeError: the system gives no thread."""
        running.add(self)
        try:
            self._thread.start()
        except RuntimeError:
            running.discard(self)
            raise

    def post(self, command: Command) -> None:
        """Queue a command; from any thread. When the thread has ended, the outbox has ended its number."""
        if self._closing:
            return
        self._stopping |= isinstance(command, Stop)  # a load in progress looks at it
        if isinstance(command, Tokenize):
            self._preparation.add(command)
        elif isinstance(command, Submit) and command.needs_preparing:
            self._announced.append(command)  # does not wake the engine thread, which could not begin yet
            self._preparation.add(command)
        else:
            self.commands.put(command)

    def join(self, seconds: float) -> None:
        """Wait for the thread, which has ended its outbox, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        if self._thread.ident is not None:  # else it could not be started
            self._thread.join(seconds)
        self._preparation.join(max(0.0, deadline - time.monotonic()))

    def abandon(self) -> None:
        """In a forked process: there is no thread any more."""
        self.snapshot = replace(self.snapshot, state="failed")
        self._outbox.abandon(FORKED)

    def _run(self) -> None:
        for attempt in _TRIES:  # what fails in closing is closed again
            try:
                if attempt == 1:
                    self._serve()
                self._close()
                return
            except BaseException as error:
                self._fault = error
        with suppress(BaseException):  # nobody is left to tell
            self._outbox.end(EngineError("engine_failed", "the engine stopped; restart termchat"))

    def _serve(self) -> None:
        try:
            self._model = model = load_model(
                self.config, self._chat, self._watch_loading, constrained=self._constrained
            )
        except _LoadStoppedError:
            return
        self._loaded = True
        self._service = service = Service(self.config, model, self._outbox.emit, self._send, self.peak)
        self._preparation.start(model)
        self._publish("ready")
        self._outbox.emit(OPENED, Answer(_info(model)))
        self._outbox.send()
        while self._listening() and self._drain(service):
            service.step()

    def _send(self, service: Service) -> None:
        """Pass on what a step brought, with a picture of the engine if there is news for it."""
        if service.requests.changed or time.perf_counter() - self._published > PUBLISH_SECONDS:
            service.metrics.look_around()
            self._publish("ready")
        self._outbox.send()

    def _watch_loading(self, progress: float | str) -> None:
        """Publish how far loading is; end it if nobody waits for it any more."""
        if self._stopping or not self._listening():
            raise _LoadStoppedError
        if isinstance(progress, str):
            self.snapshot = replace(self.snapshot, loading=progress)
        else:
            self.snapshot = replace(self.snapshot, loaded=progress, loading="")

    def _drain(self, service: Service) -> bool:
        """Carry out queued commands; waits for one when there is nothing to compute. False: stop."""
        if not service.busy:
            service.metrics.idle()
            self._publish("ready")
            if not self._handle(service, self.commands.get()):
                return False
        while not self.commands.empty():
            if not self._handle(service, self.commands.get()):
                return False
        return True

    def _handle(self, service: Service, command: Command) -> bool:
        while self._announced:  # before whatever else concerns them
            self._begin(service, self._announced.popleft())
        match command:
            case Submit():
                self._begin(service, command)
            case Prepared():
                service.prepared(command)
            case Abort(id):
                self._preparation.drop(id)
                service.abort(id)
            case Focus(id):
                service.scheduler.focused = id
            case MeasurePeak(id):
                self._answer(id, service.measure_peak)
            case TellPeak(peak):
                self.peak.tell(peak)
            case Audit(id):
                self._answer(id, service.audit)
            case Stop():
                return False
        return True

    def _begin(self, service: Service, command: Submit) -> None:
        if not service.submit(command):
            self._preparation.drop(command.id)
        elif isinstance(command.source.content, list) and not command.needs_preparing:
            service.prepared(Prepared(command.id, command.source.content, None))

    def _answer(self, id: int, function: Callable[[], object]) -> None:
        try:
            answer = Answer(function())
        except Exception as error:
            log.exception("a call of the engine failed")
            answer = Answer(None, of_call(error))
        self._outbox.emit(id, answer)

    def _prepared(self, command: Submit | Tokenize, result: Prepared) -> None:
        """On a prompt thread."""
        if isinstance(command, Submit):
            self.commands.put(result)
        else:
            self._outbox.emit(command.id, Answer(result.ids, result.error))
            self._outbox.send(wake_here=True)

    def _give_up(self, fault: BaseException) -> None:
        """On a prompt thread: without it prompts may stay where they are for ever."""
        self._fault = fault
        self.commands.put(Stop())

    def _close(self) -> None:
        """The thread ends: everything that is open gets its last event, and the memory is freed.

        Whatever failed before may fail here, too, so each part is done whether or not the one before it was.
        """
        self._closing = True  # whoever opened a number before the outbox ends is told by that
        error, service = self._reason(), self._service
        try:
            self.snapshot = replace(
                self.snapshot,
                state="failed" if error else "closed",
                running=0,
                waiting=0,
                last_step_rows=0,
                tokens_per_second=None,
                bandwidth_gbs=None,
                conversations=(),
            )
            self._preparation.close()
            if service is not None:
                service.requests.end("error" if error else "aborted", error)
                self._outbox.send()
        finally:
            try:
                model, self._model, self._service = self._model, None, None
                if model is not None:
                    model.close()
            finally:
                self._outbox.end(error)
                self._announced.clear()
                running.discard(self)

    def _reason(self) -> EngineError | None:
        """Why the thread ends; None if it was asked to."""
        fault, self._fault = self._fault, None
        if fault is not None and self._error is None:
            self._error = of_engine(fault, self.config.model, loaded=self._loaded)
            if self._error is not fault:
                log.error("%s", self._error, exc_info=fault)
        return self._error

    def _publish(self, state: State) -> None:
        """Replace the snapshot by reference, so that readers need no lock."""
        assert self._service is not None, "there is a model to picture"
        self._published = time.perf_counter()
        self.snapshot = self._service.snapshot(state)


def _info(model: LoadedModel) -> ModelInfo:
    return ModelInfo(
        model.name,
        model.vocabulary,
        model.context_length,
        model.chat_template is not None,
        dict(model.defaults),
        model.notes,
        model.place,
    )
