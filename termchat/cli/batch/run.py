"""Answers the lines of a batch, as many at once as asked for, holding only those in memory."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from engine import Finished, TextDelta

from ...constraints import constrains, over
from ...given_file import PIECE, open_given
from ...units import number
from ..console import Console, to_json
from ..destination import stream_of
from ..errors import FAILED, OK, CliError, failure_of
from ..output import Output
from ..progress import ProgressLine
from ..result import Result
from ..serving import Serving, check_flags, choose, load_setup, serving, sized, warn_if_slow
from ..stdin import Input
from .lines import BadLine, Job, key_of, read_jobs
from .results import ResultFile

Results = ResultFile | Output
"""Where results go: a file that a rerun goes on with, or a stream that is only written to."""

QUEUED_AHEAD = 2
"""Lines in flight for each conversation computed: the next is ready when a place in the batch gets free."""

PROGRESS_SECONDS = 0.5
LOG_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What was asked for. sampling and engine hold only what was given as options."""

    source: str
    output: str
    concurrency: int
    model: str | None = None
    yes: bool = False
    system: str = ""
    raw: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where the lines come from, for people."""
        return self.source if self.source != "-" else "standard input"


@dataclass(slots=True)
class Tally:
    """How far the batch is."""

    done: int = 0
    failed: int = 0
    skipped: int = 0
    anew: int = 0
    thinking: int = 0
    cut: int = 0
    tokens: int = 0
    started: float = field(default_factory=time.perf_counter)

    def __str__(self) -> str:
        elapsed = time.perf_counter() - self.started
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        skipped += f", {self.anew} anew as the line is another one now" if self.anew else ""
        return (
            f"{self.done} answered, {self.failed} failed{skipped}; "
            f"{self.tokens} tokens in {number(elapsed)} s ({number(self.tokens / elapsed)} a second)"
        )


def run_batch(console: Console, request: BatchRequest) -> int:
    """Answer all lines; the exit code. UserError: the batch as a whole cannot be done."""
    check_flags(request.sampling)
    with ExitStack() as stack:
        stream = stack.enter_context(stream_of(request.output, console.output))
        # The input first: a file of results loses its last line if that is torn, and this could be the input.
        source = stack.enter_context(_open(console, request, stream.fd if stream else request.output))
        if stream is not None:
            stream.check()
            results: Results = stream
        else:
            results = ResultFile(Path(request.output))
            stack.callback(results.close)
        setup = load_setup(console)
        choice = choose(console, setup, request.model, yes=request.yes, flags=request.engine)
        choice = sized(choice, request.concurrency)

        async def run() -> Tally:
            constrained = constrains(request.sampling)
            async with serving(console, choice, chat=not request.raw, constrained=constrained) as served:
                warn_if_slow(console, served)
                return await _Batch(console, served, request, results).run(source)

        tally = asyncio.run(run())
        if stream is not None:
            stream.check()
    console.messages.note(str(tally))
    if tally.thinking:
        console.messages.note(f"replies that ended inside their thinking: {tally.thinking}; -n allows more")
    if tally.cut:
        console.messages.note(f"replies that ended where the context or the KV cache was full: {tally.cut}")
    received = console.signals.received
    if received is not None:
        return 128 + received
    return FAILED if tally.failed else OK


@contextmanager
def _open(console: Console, request: BatchRequest, output: int | str) -> Iterator[BinaryIO]:
    """The lines, as UTF-8, from whatever they come but `output`."""
    fd = console.stdin
    if request.source != "-":
        try:
            with console.waiting(request.source):
                fd = open_given(request.source)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise CliError("usage", f"cannot read {request.source}: {reason}") from error
    elif not console.has_input:
        raise CliError("usage", "there is nothing on standard input; pipe the lines in, or name a file")
    if _same_file(fd, output):  # each result would be a line to answer, without end
        name = "" if request.source != "-" else "the file on "
        raise CliError("usage", f"{name}{request.place} is both input and output; name another output")
    yield io.BufferedReader(Input(fd), PIECE)  # stays open: a thread that is not waited for may read it


def _same_file(fd: int, other: int | str) -> bool:
    """Whether a descriptor and another one, or a name, are of one regular file."""
    info = os.fstat(fd)
    try:
        return stat.S_ISREG(info.st_mode) and os.path.samestat(info, os.stat(other))
    except (OSError, ValueError):  # there is none yet, or whoever opens it says what is wrong
        return False


class _Batch:
    def __init__(self, console: Console, served: Serving, request: BatchRequest, results: Results) -> None:
        self._console = console
        self._served = served
        self._request = request
        self._results = results
        self._tally = Tally()
        self._peak: float | None = None
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Job | BadLine | None | OSError] = asyncio.Queue()
        self._places = threading.Semaphore(1)  # lines read ahead of the workers

    async def run(self, source: BinaryIO) -> Tally:
        """Until the last line is answered, or a signal or a closed pipe stops it."""
        self._peak = await self._served.bandwidth_peak()
        threading.Thread(target=self._read, args=(source,), name="lines", daemon=True).start()
        work = asyncio.ensure_future(self._work())
        with ExitStack() as stack:
            cancel = self._console.signals.calling(lambda: self._loop.call_soon_threadsafe(work.cancel))
            stack.enter_context(cancel)
            if isinstance(self._results, Output):
                stack.enter_context(self._results.watch(work.cancel))
            try:
                await work
            except asyncio.CancelledError:
                pass  # a signal, or nobody reads: what is complete has been written
            except ExceptionGroup as group:
                raise group.exceptions[0] from None
        return self._tally

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            progress = group.create_task(self._show_progress())
            workers = [
                group.create_task(self._worker()) for _ in range(QUEUED_AHEAD * self._request.concurrency)
            ]
            await asyncio.wait(workers)
            progress.cancel()

    async def _worker(self) -> None:
        while True:
            line = await self._queue.get()
            self._places.release()
            if line is None or isinstance(line, OSError):
                self._queue.put_nowait(line)  # for the other workers
                if line is not None:
                    raise CliError("input", f"cannot read {self._request.place}: {line.strerror}")
                return
            record = self._bad(line) if isinstance(line, BadLine) else await self._answer(line)
            await self._write(to_json(record))

    async def _answer(self, job: Job) -> dict[str, Any]:
        try:
            params = self._served.params(over(self._request.sampling, job.sampling)).seeded()
        except CliError as error:
            return self._bad(BadLine(job.index, job.id, CliError("invalid_request", str(error))))
        generate = self._served.engine.generate
        async with generate(job.prompt, params, template_vars=self._served.template_vars) as stream:
            deltas = (event async for event in stream if isinstance(event, TextDelta))
            logprobs = [each async for delta in deltas for each in delta.logprobs or ()]
            finished = await stream.result()
        if finished.error is None:
            self._tally.done += 1
            self._tally.tokens += finished.usage.completion_tokens
            result = self._result(finished, schema=params.schema is not None)
            if params.logprobs is not None:
                result = result._replace(logprobs=logprobs)
            self._tally.thinking += bool(result.thinking and not result.text)
            self._tally.cut += finished.reason in ("context", "capacity")
            return {"index": job.index, **result.as_dict(), "id": job.id, "line": job.line}
        failure = self._served.choice.failure(finished.error)
        if failure.code == "engine_failed":
            raise failure
        return self._bad(BadLine(job.index, job.id, failure))

    def _result(self, finished: Finished, *, schema: bool) -> Result:
        served, model = self._served, self._served.choice.model.name
        thinking, text = "", finished.text
        if not self._request.raw:
            thinking, text = served.thinking.split(finished.text)
        snapshot = served.engine.snapshot()
        return Result(
            "",
            None,
            model,
            text,
            thinking,
            finished,
            served.load_ms,
            self._peak,
            schema=schema,
            draft=snapshot.draft,
            draft_off=snapshot.draft_off,
        )

    def _bad(self, line: BadLine) -> dict[str, Any]:
        self._tally.failed += 1
        return {"index": line.index, "id": line.id, "error": failure_of(line.error).as_dict()}

    async def _write(self, line: str) -> None:
        if isinstance(self._results, ResultFile):
            self._results.append(line)
        else:
            await self._results.send(line + "\n", json=True)

    def _read(self, source: BinaryIO) -> None:
        """Hand over one line after the other; on a thread of its own, which waits until a worker takes it."""
        done = self._results.done if isinstance(self._results, ResultFile) else {}
        try:
            for job in read_jobs(source, system=self._request.system, raw=self._request.raw):
                key = key_of(job.id)
                if key in done and done[key] in (None, job.line):
                    self._tally.skipped += 1
                else:
                    self._tally.anew += key in done
                    self._hand_over(job)
            self._hand_over(None)
        except OSError as error:
            self._hand_over(error)

    def _hand_over(self, item: Job | BadLine | None | OSError) -> None:
        self._places.acquire()
        with suppress(RuntimeError):  # the loop is closed: the batch was stopped
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def _show_progress(self) -> None:
        with ProgressLine(self._console.messages, every=LOG_SECONDS) as line:
            while True:
                await asyncio.sleep(PROGRESS_SECONDS)
                line.show(str(self._tally))
