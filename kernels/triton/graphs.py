"""CUDA graphs: what a step launches, recorded once for a size and then begun with one call.

Which graph a step gets follows from its size alone. A size is computed without a graph the first time, which
compiles its kernels, and recorded the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Rows that steps with a graph are filled up to. Larger steps keep the device busy without one."""

Result = TypeVar("Result")


def padded_rows(rows: int, samples: int) -> int | None:
    """Rows, and samples, of a step that is filled up for a graph; None: it gets none.

    That are steps in which most rows are sampled: in others the vocabulary would be computed for nothing.
    """
    if not rows or 2 * samples < rows:
        return None
    return next((size for size in SIZES if size >= max(rows, samples)), None)


class Recorded(Protocol):
    """A recorded graph."""

    def replay(self) -> None:
        """Begin all that it holds."""


Record = Callable[[Callable[[], Any]], tuple[Recorded, Any]]
"""Runs a function while what it launches is recorded: the graph, and what the function returned."""


class Entry(NamedTuple, Generic[Result]):
    """A graph and its result, whose tensors each replay fills anew."""

    graph: Recorded
    result: Result


class Graphs(Generic[Result]):
    """Graphs by what they depend on. record: None where there are no graphs; then all is computed at once.

    nbytes: of device memory that the graphs hold. reason: why there are none any more, "" if there are.
    """

    def __init__(self, record: Record | None, used: Callable[[], int] = lambda: 0) -> None:
        """used: bytes of the device's memory that are taken."""
        self._record = record
        self._used = used
        self._entries: dict[Hashable, Entry[Result]] = {}
        self._warm: set[Hashable] = set()
        self.nbytes = 0
        self.reason = "" if record else "the device has none"

    @property
    def on(self) -> bool:
        """Whether steps are filled up for graphs."""
        return self._record is not None

    def run(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Compute, or replay what was recorded for this key."""
        if self._record is None:
            return compute()
        entry = self._entries.get(key)
        if entry is None:
            if key not in self._warm:
                result = compute()
                self._warm.add(key)
                return result
            before = self._used()
            try:
                entry = Entry(*self._record(compute))
            except (RuntimeError, MemoryError) as error:
                self.stop(str(error))
                return compute()
            self.nbytes += max(0, self._used() - before)
            self._entries[key] = entry
        entry.graph.replay()
        return entry.result

    def clear(self) -> None:
        """Forget all graphs: addresses they hold are no longer those of what they read."""
        self._entries.clear()
        self.nbytes = 0

    def stop(self, reason: str) -> None:
        """Do without graphs from now on."""
        self.clear()
        self._record, self.reason = None, reason.strip().splitlines()[0] if reason.strip() else "unknown"


def cuda_record(device: torch.device) -> Record:
    """Records CUDA graphs that share one pool of memory. What other threads do meanwhile does not matter."""
    pool = torch.cuda.graph_pool_handle()

    def record(compute: Callable[[], Any]) -> tuple[Recorded, Any]:
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = compute()
        return graph, result

    return record


def used_bytes(device: torch.device) -> int:
    """Bytes of a GPU's memory that torch has taken from it."""
    return int(torch.cuda.memory_reserved(device))
