"""Work that blocks, on threads that never hold up the interface or the end of the program."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..errors import UserError

T = TypeVar("T")


def _settle(future: asyncio.Future[T], result: T | None, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)  # type: ignore[arg-type]


def _run(function: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
    result: T | None = None
    failure: BaseException | None = None
    try:
        result = function()
    except BaseException as error:  # handed to whoever waits
        failure = error
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, future, result, failure)


def in_background(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a function on a thread of its own, which the end of the program does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_run, args=(function, loop, future), daemon=True).start()
    return future


class ClosedError(UserError):
    """A call was made after the end."""


class Worker:
    """One thread that carries out calls in the order in which they were made.

    After `close` nothing is carried out any more, and nobody waits for it: a call fails at once.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Carry out a call; its result or exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if not self.post(lambda: _run(function, loop, future)):
            future.set_exception(ClosedError("the program is ending"))
        return future

    def post(self, function: Callable[[], object]) -> bool:
        """Carry out a call that reports its own errors; whether it will be."""
        with self._lock:
            if not self._closed:
                self._jobs.put(function)
            return not self._closed

    def close(self, timeout: float) -> bool:
        """Do what is waiting, then end; whether all was done in this time (seconds)."""
        with self._lock:
            if not self._closed:
                self._jobs.put(None)
            self._closed = True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
