"""The ranks of a parallel model on threads of this process: what they compute, without the processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from torch import Tensor

from engine.parallel.channel import RESULT_HEADER
from engine.parallel.group import Group
from engine.parallel.rank_model import RankModel
from engine.parallel.shares import Split
from kernels.step import Step

SECONDS = 60.0


class Exchange:
    """Where the ranks of one model meet."""

    def __init__(self, split: Split) -> None:
        self.barriers = [threading.Barrier(split.tensor, timeout=SECONDS) for _ in range(split.pipeline)]
        self.held: list[list[Tensor | None]] = [[None] * split.tensor for _ in range(split.pipeline)]
        self.queues: list[SimpleQueue[Tensor]] = [SimpleQueue() for _ in range(split.ranks)]


class ThreadGroup(Group):
    def __init__(self, split: Split, rank: int, exchange: Exchange) -> None:
        super().__init__(split, rank)
        self._number = rank
        self._exchange = exchange

    def gather(self, x: Tensor) -> list[Tensor]:
        held, barrier = self._exchange.held[self.stage], self._exchange.barriers[self.stage]
        held[self.rank] = x.clone()
        barrier.wait()
        parts = [part.clone() for part in held if part is not None]
        assert {part.shape for part in parts} == {x.shape}
        barrier.wait()
        return parts

    def gather_at_first(self, x: Tensor) -> list[Tensor] | None:
        parts = self.gather(x)
        return parts if self.rank == 0 else None

    def send(self, x: Tensor) -> None:
        self._exchange.queues[self._number + self.split.tensor].put(x.clone())

    def receive(self, rows: int, columns: int) -> Tensor:
        x = self._exchange.queues[self._number].get(timeout=SECONDS)
        assert x.shape == (rows, columns)
        return x

    def sent(self) -> None:
        pass


class ThreadRanks:
    """A model in ranks. asked: what an engine asks before the first step."""

    def __init__(
        self, path: Path, split: Split, blocks: int, block_size: int, limits: list[int], **how: Any
    ) -> None:
        exchange = Exchange(split)
        self.ranks = [
            RankModel(rank, lambda split, rank, _: ThreadGroup(split, rank, exchange))
            for rank in range(split.ranks)
        ]
        self._threads = ThreadPoolExecutor(split.ranks)
        context = how.get("context", blocks * block_size)
        self._ask("open", split=list(split), backend="reference", device="cpu", dtype="float32", threads=1)
        load = {"path": str(path), "quantization": how.get("quantization", "auto"), "context": context}
        self.placed = self._ask("load", **load)
        cache = {"blocks": blocks, "block_size": block_size, "format": how.get("kv", "float32")}
        self._ask("begin", **cache, positions=context, limits=limits)

    def step(self, step: Step, *, late: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Tokens, and logits [samples, vocabulary]. late: the mask comes behind the step."""
        memory, mask = step.memory.tobytes(), step.mask.tobytes()
        sent = memory[: len(memory) - len(mask)] if late else memory
        asked: list[bytes] = []

        def masks() -> bytes:
            assert late
            asked.append(mask)
            return mask

        bodies = self._all(lambda rank: rank.step(bytearray(sent), masks, logits=True))
        assert len(asked) == late, "the rank that samples asks for it, once"
        found = [b"".join(map(bytes, body[1:])) for body in bodies]
        samples = step.counts.samples
        body = next(body for body in found if RESULT_HEADER.unpack_from(body)[0] == samples)
        _, columns, _ = RESULT_HEADER.unpack_from(body)
        tokens = np.frombuffer(body, np.int32, samples, RESULT_HEADER.size)
        logits = np.frombuffer(body, np.float32, samples * columns, RESULT_HEADER.size + 4 * samples)
        return tokens, logits.reshape(samples, columns)

    def close(self) -> None:
        self._threads.shutdown()

    def _ask(self, question: str, **body: Any) -> list[dict[str, Any]]:
        return self._all(lambda rank: rank.answer(question, dict(body), lambda share: None))

    def _all(self, call: Callable[[RankModel], Any]) -> list[Any]:
        futures = [self._threads.submit(call, rank) for rank in self.ranks]
        return [future.result(SECONDS) for future in futures]
