"""What a rank holds of a model, and how it computes its part of a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

# The first rank imports these for all of them, before it forks.
import kernels.reference.backend  # noqa: F401
from kernels.backends import open_backend
from kernels.cache_format import CacheShape
from kernels.interface import Backend, BackendSettings, Inputs, Operations, Value
from kernels.machine import trim_heap
from kernels.native.mapped import MappedFiles
from kernels.program import Limits, Program, StepOutput, WriteMask
from kernels.step import Counts, Step, size_of

from ..loading.checkpoint import open_checkpoint
from ..loading.fields import refusing
from ..models.decoder import embedded, head, layers
from ..models.placing import place_rotations, place_tensors
from ..models.rope import Rotations
from ..models.weights import Weights
from ..types import EngineError
from . import operations, pieces
from .channel import RESULT, RESULT_HEADER, frame
from .devices import device_of
from .group import Group
from .shares import Split, share_of
from .tensors import RankTensors

Progress = Callable[[float | str], None]
Connect = Callable[[Split, int, torch.device], Group]

_PROGRESS_SECONDS = 0.1


class RankModel:
    """One rank. `answer` names what it can be asked, in the order in which it has to be."""

    backend: Backend
    group: Group
    program: Program
    weights: Weights
    rotations: Rotations

    def __init__(self, rank: int, connect: Connect) -> None:
        """connect: makes its connections to the others."""
        self._rank = rank
        self._connect = connect

    def answer(self, question: str, body: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """Carry out a question. EngineError, ValueError, MemoryError: it can't be."""
        match question:
            case "open":
                return self._open(progress, **body)
            case "load":
                return self._load(progress, **body)
            case "begin":
                return self._begin(**body)
            case "bandwidth":
                return {"bandwidth": self.backend.read_bandwidth(**body)}
        raise ValueError(f"nobody can be asked to {question}")

    def copy(self, pairs: bytearray) -> None:
        """Copy blocks, int32 [2, n]: from, to."""
        sources, targets = np.frombuffer(pairs, np.int32).reshape(2, -1)
        self.backend.copy_blocks(sources, targets)

    def step(self, memory: bytearray, mask: Callable[[], bytes], *, logits: bool) -> list[memoryview]:
        """Compute a rank's part of a step -> the message with what came of it.

        memory: the step's buffer, without the mask where that is still to come. mask: waits for it.
        """
        counts = Counts(*np.frombuffer(memory, np.int32, len(Counts._fields)).tolist())
        lacking = max(0, size_of(counts) - len(memory))
        memory.extend(bytes(lacking))
        step = Step.read(np.frombuffer(memory, np.uint8))
        self.rotations.reach(int(step.positions.max(initial=-1)) + 1)
        parts = pieces.pieces(step, self._split.pipeline)

        def write_masks() -> None:
            step.mask.reshape(-1)[:] = np.frombuffer(mask(), np.uint32)
            for part in parts:
                part.step.mask[:] = step.mask[part.samples]

        write: WriteMask | None = write_masks if lacking and self._samples else None
        outputs: list[StepOutput] = []
        for part in parts:
            outputs.append(self.program.launch(part.step, logits=logits, write_mask=write).result())
            write = None  # the masks of all parts are there
        self.group.sent()
        if not self._samples:
            return frame(RESULT, RESULT_HEADER.pack(0, 0, sum(output.expert_bytes for output in outputs)))
        output = pieces.joined(outputs, parts, step.counts.samples)
        columns = 0 if output.logits is None else output.logits.shape[1]
        header = RESULT_HEADER.pack(len(output.tokens), columns, output.expert_bytes)
        values = () if output.logits is None else (np.ascontiguousarray(output.logits),)
        return frame(RESULT, header, np.ascontiguousarray(output.tokens, np.int32), *values)

    def _open(
        self,
        progress: Progress,
        split: list[int],
        backend: str,
        device: str,
        dtype: str,
        threads: int,
        exact: bool = True,
        findings: str | None = None,
    ) -> dict[str, Any]:
        self._split, self._threads = Split(*split), threads
        settings = BackendSettings(
            device_of(device, self._rank, self._split.ranks),
            dtype,  # type: ignore[arg-type]
            threads,
            findings_folder=findings,
            exact=exact,
            replays=False,
        )
        try:
            self.backend = open_backend(backend, settings, progress if self._rank == 0 else _untold)
        except ValueError as error:
            raise EngineError("model_invalid", str(error)) from error
        torch_device = self.backend.torch_device  # type: ignore[attr-defined]
        self.group = self._connect(self._split, self._rank, torch_device)
        self._samples = self._rank == self._split.sampling
        return {
            "backend": self.backend.name,
            "device": self.backend.device,
            "exact": self.backend.exact,
            "replaced": list(self.backend.replaced),
            "free_bytes": self.backend.free_bytes(),
        }

    def _load(self, progress: Progress, path: str, quantization: str, context: int) -> dict[str, Any]:
        checkpoint = open_checkpoint(path, quantization)  # type: ignore[arg-type]
        self.whole = replace(checkpoint.spec, context_length=context)
        self.share = share_of(self.whole, self._split, self._rank)
        files = MappedFiles(checkpoint.tensors.mappings())
        after = _told(checkpoint.tensors.stored_bytes // self._split.ranks, progress, self._rank == 0)
        tensors = checkpoint.tensors._replace(threads=self._threads, after=after)
        try:
            with refusing(checkpoint.path):
                part = RankTensors(tensors, self.share)
                weights = place_tensors(
                    self.share.spec, part, self.backend, first=self.share.first, last=self.share.last
                )
        except MemoryError as error:
            raise EngineError("out_of_memory", f"{checkpoint.name} does not fit: {error}") from error
        if files.lost:
            raise EngineError("model_invalid", f"{checkpoint.path}: the file was cut short while it was read")
        trim_heap()
        self.weights = operations.joined(weights, self.whole, self.group)
        return {
            "weight_bytes": self.backend.weight_bytes,
            "streamed_bytes": weights.streamed_bytes,
            "expert_bytes": weights.expert_bytes,
            "free_bytes": self.backend.free_bytes(),
        }

    def _begin(
        self, blocks: int, block_size: int, format: str, positions: int, limits: list[int]
    ) -> dict[str, Any]:
        spec = self.share.spec
        self.rotations = place_rotations(spec, self.weights, self.backend, positions)
        try:
            self.backend.allocate_cache(CacheShape(spec.cached, blocks, block_size, format))
        except MemoryError as error:
            raise EngineError("out_of_memory", f"the KV cache does not fit: {error}") from error
        self.program = self.backend.capture(self._forward, Limits(*limits))
        return {}

    def _forward(self, ops: Operations, batch: Inputs) -> Value:
        """The rank's layers; what comes before and behind them is another stage's, or here."""
        own, share, spec = operations.RankOperations(ops, self.group), self.share, self.share.spec
        columns, width = self.whole.input_columns, self.whole.width
        if share.first:
            x, given = embedded(own, self.whole, self.weights, batch)
        else:
            later = len(self.whole.layers) - share.layers.start if columns else 0
            received = self.group.receive(len(batch.tokens), width + later * columns)
            x, *rest = own.split(received, (width, *[columns] * later))
            given = tuple(rest)
        x = layers(own, spec, self.weights, batch, x, given)
        if share.last:
            return head(own, spec, self.weights, batch, x)
        self.group.send(torch.cat(tuple(map(own.tensor, (x, *given[len(spec.layers) :]))), 1))
        return own.nothing()


def _untold(words: str) -> None:
    """One rank tells for all."""


def _told(total: int, progress: Progress, tells: bool) -> Callable[[int], None] | None:
    """Tells how much of its files a rank has used."""
    used, last = 0, time.monotonic()

    def after(nbytes: int) -> None:
        nonlocal used, last
        used += nbytes
        if time.monotonic() - last > _PROGRESS_SECONDS:
            last = time.monotonic()
            progress(min(1.0, used / max(1, total)))

    return after if tells else None
