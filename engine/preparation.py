"""Prompts on their way to token ids, on threads of their own.

A long prompt is worked on in pieces, and whose prompt has had the fewest goes first: so a short question
never waits for a long paste, and what nobody wants any more ends with its piece.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from .commands import Prepared, Submit, Tokenize
from .faults import of_prompt, of_thread
from .model import LoadedModel
from .prompt import encode
from .types import EngineError

log = logging.getLogger(__name__)

THREADS = 4
"""Prompts worked on at the same time: a template can't be interrupted, and may take seconds."""

EXIT_SECONDS = 1.5
"""How long the end of the program waits for the pieces in work: no thread may come back from the tokenizer's
native code into an interpreter that is gone.
"""

MOST_FAULTS = 8
"""In a row, after which a thread gives up instead of trying again for ever."""

Deliver = Callable[[Submit | Tokenize, Prepared], None]


@dataclass(slots=True, order=True)
class _Job:
    """One prompt in work. pieces: how many it has had. result: what came out, once that is known."""

    pieces: int
    arrival: int
    command: Submit | Tokenize = field(compare=False)
    steps: Generator[None, None, Prepared] | None = field(default=None, compare=False)
    result: Prepared | None = field(default=None, compare=False)

    def failed(self, error: EngineError) -> None:
        """Nothing came out, and why."""
        self.result = Prepared(self.command.id, [], error)


class Preparation:
    """The prompt threads of one engine.

    deliver: takes what came of a prompt: token ids, or the reason why there are none; on a prompt thread, for
    each prompt that was not dropped. gave_up: takes what failed again and again in a thread's own work.
    """

    def __init__(self, deliver: Deliver, gave_up: Callable[[BaseException], None]) -> None:
        self._deliver = deliver
        self._gave_up = gave_up
        self._model: LoadedModel | None = None
        self._wake = threading.Condition(threading.Lock())
        self._jobs: dict[int, _Job] = {}
        self._arrivals = itertools.count()
        self._queue: list[_Job] = []
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def start(self, model: LoadedModel) -> None:
        """Begin to work, for this model. Raises EngineError: the system gives no thread."""
        self._model = model
        try:
            with self._wake:
                self._spawn()
        except RuntimeError as error:
            raise of_thread(error) from error
        _running.add(self)

    def add(self, command: Submit | Tokenize) -> None:
        """Queue a prompt; from any thread. After `close` nothing happens."""
        with self._wake:
            if self._closed:
                return
            job = _Job(0, next(self._arrivals), command)
            self._jobs[command.id] = job
            heapq.heappush(self._queue, job)
            if self._idle < len(self._queue) and 0 < len(self._threads) < THREADS:
                try:
                    self._spawn()
                except RuntimeError:  # no more threads for this user: those that run do it all
                    log.warning("no further prompt thread can be started")
            self._wake.notify()

    def drop(self, id: int) -> None:
        """Forget a prompt, if it is not done yet."""
        self._jobs.pop(id, None)

    def close(self) -> None:
        """End the threads, those in the middle of a piece when it is done."""
        with self._wake:
            self._closed = True
            self._jobs.clear()
            self._queue.clear()
            self._wake.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the threads to end after `close`."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _spawn(self) -> None:
        # Not a thread pool of the library: that one's threads hold up the end of the program.
        thread = threading.Thread(target=self._run, name="prompt", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        job: _Job | None = None
        fault: BaseException | None = None  # of this thread's own work, not of a prompt
        faults = 0
        while not self._closed and faults < MOST_FAULTS:
            try:
                if fault is not None:
                    log.error("a prompt thread failed", exc_info=fault)
                    if job is not None:
                        job.failed(of_prompt(fault))
                    fault = None
                if job is None:
                    job = self._next()
                if job is not None:
                    self._advance(job)
                job, faults = None, 0
            except BaseException as error:
                fault = error
                faults += 1
        if fault is not None:
            self._gave_up(fault)

    def _next(self) -> _Job | None:
        """The prompt to go on with; None at the end."""
        with self._wake:
            while not self._closed:
                if self._queue:
                    return heapq.heappop(self._queue)
                self._idle += 1
                try:
                    self._wake.wait()
                finally:
                    self._idle -= 1
        return None

    def _advance(self, job: _Job) -> None:
        """Do one piece of the work; hand over what came out, once it is there."""
        if job.command.id not in self._jobs:
            return
        if job.result is None:
            try:
                if job.steps is None:
                    assert self._model is not None, "no thread runs before the model is there"
                    job.steps = prepare(self._model, job.command)
                next(job.steps)
            except StopIteration as done:
                job.result = done.value
            except EngineError as error:
                job.failed(error)
            except BaseException as error:  # a panic of the tokenizer is no Exception
                log.exception("a prompt could not be prepared")
                job.failed(of_prompt(error))
            else:
                job.pieces += 1
                with self._wake:
                    heapq.heappush(self._queue, job)
                return
        assert job.result is not None, "the work is done"
        self._deliver(job.command, job.result)
        self.drop(job.command.id)


def prepare(model: LoadedModel, command: Submit | Tokenize) -> Generator[None, None, Prepared]:
    """What a prompt and its settings come to, in steps. Raises EngineError: as `encode`, and grammar."""
    ids = yield from encode(model, command.source)
    if command.params is None or command.params.constraint is None:
        return Prepared(command.id, ids, None)
    yield
    if model.grammars is None:
        raise EngineError("grammar", f"replies of {model.name} can't be made to keep to anything")
    constraint = model.grammars.constraint(command.params, command.source, ids)
    return Prepared(command.id, ids, None, constraint)


_running: weakref.WeakSet[Preparation] = weakref.WeakSet()


def _end_all() -> None:
    """At the end of the program, whether or not its engines were closed."""
    preparations = list(_running)
    for preparation in preparations:
        preparation.close()
    deadline = time.monotonic() + EXIT_SECONDS
    for preparation in preparations:
        preparation.join(max(0.0, deadline - time.monotonic()))


atexit.register(_end_all)
os.register_at_fork(after_in_child=_running.clear)  # a child has none of these threads
