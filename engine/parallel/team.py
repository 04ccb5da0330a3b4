"""The ranks as the engine has them: started, asked, watched, and ended, whatever becomes of either side.

They are processes of one that this one starts: it imports what all need once and forks into the others, so
that they start together and share its memory. Nothing of theirs has a name or a port that another program
could have as well. Each ends when its connection does, and (on Linux) when its parent dies. A session of
their own keeps the terminal's signals from them; what they print goes to the log.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from ..types import EngineError
from .channel import ERROR, JSON, PROGRESS, Channel, Message, json_frame
from .shares import Split
from .stall import LOOK, Stall

log = logging.getLogger(__name__)

GONE_SECONDS = 3.0
"""For the ranks to end; then they are killed."""

FIRST_BYTES, RANK_BYTES = 180_000_000, 60_000_000
"""Of main memory that the first rank takes before it has any weights, and each other one besides: measured
with torch 2.13, most of which they share.
"""

_NO_WORDS = (" ", "frame #", "Exception raised from", "[W")
"""Lines of theirs that begin like this say where something happened, or are warnings."""

_LINE = 1000
"""Characters of a line of theirs that the log takes."""


class Team:
    """The ranks of one model. Used by one thread, which must live as long as they do: with it they end."""

    def __init__(self, split: Split, watch: Callable[[float | str], None] | None = None) -> None:
        """EngineError(engine_failed): they can't be started. watch: see `ask`."""
        self.split = split
        self._failed: EngineError | None = None
        self._said: deque[str] = deque(maxlen=20)
        self._stall = Stall()
        self._progress: float | str = 0.0
        pairs: list[tuple[socket.socket, socket.socket]] = []
        try:
            pairs += (socket.socketpair() for _ in range(split.ranks))
            self._process = _start([theirs for _, theirs in pairs])
        except (OSError, ValueError) as error:
            for ours, _ in pairs:
                ours.close()
            raise _not_started(split, error) from error
        finally:
            for _, theirs in pairs:
                theirs.close()
        self._channels = [Channel(ours) for ours, _ in pairs]
        self._outgoing: list[deque[memoryview]] = [deque() for _ in pairs]
        self._answers: list[Message | None] = [None] * len(pairs)
        self._pids = [self._process.pid]
        assert self._process.stdout is not None
        self._listener = threading.Thread(
            target=self._listen, args=(self._process.stdout,), name="ranks", daemon=True
        )
        try:
            self._listener.start()
            self._pids = [message.json()["pid"] for message in self.answers(watch)]
        except BaseException as error:
            self._end()
            if isinstance(error, RuntimeError):  # of the thread
                raise _not_started(split, error) from error
            raise

    def ask(
        self,
        question: str,
        bodies: Sequence[dict[str, Any]] | None = None,
        watch: Callable[[float | str], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Ask all ranks something, each with a body of its own; their answers. EngineError: they can't.

        watch: told the first rank's progress, 0 to 1, now and then; what it raises ends the waiting.
        """
        for rank in range(self.split.ranks):
            body = {} if bodies is None else bodies[rank]
            self.queue(rank, json_frame(JSON, {"ask": question, **body}))
        return [message.json() for message in self.answers(watch)]

    def queue(self, rank: int, parts: list[memoryview]) -> None:
        """Have something sent before the next answers are waited for; until then it must stay as it is."""
        self._outgoing[rank] += parts

    def flush(self) -> None:
        """Send what was queued, as far as the ranks take it now."""
        if self._failed is not None:
            raise self._failed
        for rank in range(self.split.ranks):
            self._send(rank)

    def answers(self, watch: Callable[[float | str], None] | None = None) -> list[Message]:
        """Send what was queued, and wait for a message of each rank. EngineError: one has failed."""
        if self._failed is not None:
            raise self._failed
        self._answers = [None] * self.split.ranks
        self._stall.begin()
        looked = time.monotonic()
        while any(self._outgoing) or None in self._answers:
            poll = select.poll()
            for channel, waiting in zip(self._channels, self._outgoing, strict=True):
                poll.register(channel.socket, select.POLLIN | (select.POLLOUT if waiting else 0))
            ranks = {channel.socket.fileno(): rank for rank, channel in enumerate(self._channels)}
            for descriptor, event in poll.poll(int(LOOK * 1000)):
                rank = ranks[descriptor]
                if event & select.POLLOUT:
                    self._send(rank)
                if event & ~select.POLLOUT:
                    self._take(rank)
            if watch is not None:
                watch(self._progress)
            if time.monotonic() - looked >= LOOK:
                looked = time.monotonic()
                if (hanging := self._stall.look(self._pids)) is not None:
                    self._fail(f"process {hanging + 1} of {self.split.ranks} hangs")
        return [answer for answer in self._answers if answer is not None]

    def close(self) -> None:
        """End the ranks, and wait until they have."""
        if self._failed is None:
            self._failed = EngineError("engine_failed", "the model is closed")
        for channel in self._channels:
            channel.close()
        try:
            self._process.wait(GONE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._listener.ident is not None:  # else it could not be started
            self._listener.join(GONE_SECONDS)

    def _send(self, rank: int) -> None:
        waiting, connection = self._outgoing[rank], self._channels[rank].socket
        try:
            while waiting:
                count = connection.send(waiting[0], socket.MSG_DONTWAIT)
                rest = waiting.popleft()[count:]
                if rest.nbytes:
                    waiting.appendleft(rest)
        except BlockingIOError:
            return
        except OSError:
            waiting.clear()
            self._ended(rank)

    def _take(self, rank: int) -> None:
        """Read what a rank has sent: progress, its answer, its last words or its end."""
        try:
            if self._answers[rank] is not None:  # nothing more was asked of it
                raise EOFError
            while self._answers[rank] is None:
                message = self._channels[rank].receive(socket.MSG_DONTWAIT)
                if message is None:
                    return
                if message.kind == ERROR:
                    self._give_up(message)
                if message.kind != PROGRESS:
                    self._answers[rank] = message
                elif rank == 0:
                    self._progress = message.json()
        except EOFError:
            self._ended(rank)

    def _ended(self, rank: int) -> NoReturn:
        """A rank is gone. The first to go has said why, but those that go with it may be seen before."""
        for channel in self._channels:
            with suppress(EOFError):
                while (message := channel.receive(socket.MSG_DONTWAIT)) is not None:
                    if message.kind == ERROR:
                        self._give_up(message)
        self._fail(f"process {rank + 1} of {self.split.ranks} ended")

    def _give_up(self, last_words: Message) -> NoReturn:
        self._end()
        self._failed = EngineError(**last_words.json())
        raise self._failed

    def _fail(self, what: str) -> NoReturn:
        """Nothing more can come of the ranks. Raises what every request is told."""
        code = self._end()
        killed = f" (signal {-code})" if code is not None and code < 0 and "process 1 " in what else ""
        words = [line for line in self._said if not line.startswith(_NO_WORDS)]
        last = f"; it said: {words[-1]}" if words else ""
        self._failed = EngineError(
            "engine_failed",
            f"the model's {what}{killed}, and without it nothing can be computed{last}; restart termchat",
        )
        raise self._failed

    def _end(self) -> int | None:
        """Kill all ranks; the exit code of the first, if it had ended by itself."""
        try:
            code = self._process.wait(0.1)
        except subprocess.TimeoutExpired:
            code = None
        self._process.kill()  # the others are its children, and die with it
        for channel in self._channels:
            channel.close()
        self._process.wait()
        if self._listener.ident is not None:  # else it could not be started
            self._listener.join(GONE_SECONDS)
        return code

    def _listen(self, output: IO[bytes]) -> None:
        """On a thread: what the ranks print, until the last of them has ended."""
        with output:
            for line in output:
                text = line.decode(errors="replace").rstrip()[:_LINE]
                if text:
                    self._said.append(text)
                    log.warning("a rank says: %s", text)


def _not_started(split: Split, error: Exception) -> EngineError:
    return EngineError("engine_failed", f"the {split.ranks} processes of the model can't be started: {error}")


def _start(connections: list[socket.socket]) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise ValueError("nothing says where this Python interpreter is (sys.executable)")
    descriptors = [connection.fileno() for connection in connections]
    root = str(Path(__file__).parents[2])
    # What this program finds its modules by, but not the folder it happens to be run in.
    path = os.pathsep.join([root, *(place for place in sys.path if place)])
    command = [sys.executable, "-P", "-m", "engine.parallel.rank", str(os.getpid()), *map(str, descriptors)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=descriptors,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
