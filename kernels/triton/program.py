"""A decoder that is computed step by step: what goes to the device, what is launched, what comes back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from ..interface import Forward
from ..program import DeviceFault, Limits, StepOutput, WriteMask
from ..reference.device import room
from ..step import Counts, Step, size_of
from .batch import HEAD, MOST_KINDS, Batch, Kind, Padding, Staging
from .cache import Cache
from .functions import Functions
from .graphs import Graphs, padded_rows
from .operations import Bounds, Output, TritonOperations
from .sampler import Rules

Fault = Callable[[str], str]
"""Told what a GPU said when it failed; returns a sentence for people."""

Left = tuple[Tensor, ...]
"""What is left on the device: tokens, the expert bytes behind them as two words; of a forward its logits."""


@contextmanager
def watched(device: torch.device, what: str, fault: Fault) -> Iterator[None]:
    """MemoryError: the device has no room for what is done inside. DeviceFault: it failed."""
    try:
        with room(device, what):
            yield
    except RuntimeError as error:
        if "CUDA" not in str(error):
            raise
        raise DeviceFault(fault(str(error))) from error


class Launched:
    """A step that was launched; what it brings is on its way to main memory."""

    def __init__(
        self, small: Tensor, logits: Tensor | None, samples: int, done: torch.cuda.Event | None, fault: Fault
    ) -> None:
        """small: tokens of at least the samples, then the expert bytes as two words, in main memory. done:
        when they are there; None: already.
        """
        self._small = small
        self._logits = logits
        self._samples = samples
        self._done = done
        self._fault = fault

    @property
    def computed(self) -> bool:
        """On a CPU, where kernels are interpreted."""
        return self._done is None

    def result(self) -> StepOutput:
        """Wait, without the GIL. MemoryError, DeviceFault: see `watched`."""
        with watched(self._small.device, "a step", self._fault):
            if self._done is not None:
                self._done.synchronize()
            logits = None if self._logits is None else self._logits[: self._samples].cpu().numpy()
        words = self._small.numpy()
        return StepOutput(words[:-2][: self._samples].copy(), logits, int(words[-2:].view(np.int64)[0]))


class TritonProgram:
    """A forward that is launched for each step, or replayed as a graph.

    graphs: those recorded so far.
    """

    def __init__(
        self,
        use: Functions,
        cache: Callable[[], Cache],
        device: torch.device,
        forward: Forward,
        limits: Limits,
        graphs: Graphs[Left],
        fault: Fault,
    ) -> None:
        """use: the functions that compute. cache: that of the backend, when a step is launched."""
        self.graphs = graphs
        self._use = use
        self._cache = cache
        self._device = device
        self._forward = forward
        self._limits = limits
        self._fault = fault
        self._kinds: list[Kind] = []
        self._bounds = Bounds()
        self._seen_cache: Cache | None = None
        counts = Counts(limits.rows, limits.samples, limits.sequences + 1, limits.blocks_per_sequence)
        self._staging = Staging(device, HEAD + size_of(counts) // 2)
        self._generation = self._staging.generation
        self._small = self._room(limits.samples)

    @property
    def nbytes(self) -> int:
        """Bytes on the device: of the steps' buffer, and of graphs."""
        return self._staging.memory.nbytes + self.graphs.nbytes

    def launch(self, step: Step, *, logits: bool = False, write_mask: WriteMask | None = None) -> Launched:
        """Send a step and begin it. ValueError: it exceeds the limits, or points outside tables and cache.

        The mask follows the step, and the sampling, then launched by itself, follows the mask.
        """
        cache = self._cache()
        self._check(step, cache)
        if self._use.failed and self.graphs.on:
            self.graphs.stop("plain torch computes in place of a kernel")
        size = padded_rows(step.counts.rows, step.counts.samples) if self.graphs.on else None
        padding = None if size is None else Padding(size, size, cache.spare_block)
        rules = Rules.of(step)
        drawn = rules if write_mask is None else None
        what = f"a step of {step.counts.rows} tokens"
        with torch.inference_mode(), watched(self._device, what, self._fault):
            batch = self._staging.write(step, padding, cache.shape.block_size, self._kinds)
            if (self._generation, self._seen_cache) != (self._staging.generation, cache):
                self.graphs.clear()
                self._generation, self._seen_cache = self._staging.generation, cache

            def compute() -> Left:
                operations = TritonOperations(self._use, batch, cache, drawn, self._bounds)
                output = self._forward(operations, batch.inputs())
                assert isinstance(output, Output), "a forward returns what sample returned"
                words = output.expert_bytes.view(torch.int32)
                return torch.cat([output.tokens, words]), output.logits

            small, scores = self._run(size, drawn, compute)
            self._remember(batch)
            if write_mask is not None:
                write_mask()
                self._staging.write_mask(batch, step.mask)
                read = small

                def draw() -> Left:
                    return (torch.cat([self._use["sample"](scores, batch, rules), read]),)

                (small,) = self._run(size, (rules, "masked"), draw)
            return self._bring(small, scores if logits else None, step.counts.samples)

    def _run(self, size: int | None, what: Hashable, compute: Callable[[], Left]) -> Left:
        """Compute what a step of so many rows is made of, or replay it; None: it is none of a graph's."""
        return compute() if size is None else self.graphs.run((size, what), compute)

    def _bring(self, small: Tensor, logits: Tensor | None, samples: int) -> Launched:
        """Begin to copy what came of a step to main memory."""
        if len(small) > len(self._small):
            self._small = self._room(len(small))
        target = self._small[: len(small)]
        target.copy_(small, non_blocking=True)
        done = None
        if self._device.type == "cuda":
            done = torch.cuda.Event()
            done.record()
        return Launched(target, logits, samples, done, self._fault)

    def _room(self, samples: int) -> Tensor:
        return torch.zeros(samples + 2, dtype=torch.int32, pin_memory=self._device.type == "cuda")

    def _remember(self, batch: Batch) -> None:
        """Send the work of the kinds of attention that a forward has asked for with each step from now on."""
        for kind in batch.missing:
            if len(self._kinds) < MOST_KINDS:
                self._kinds.append(kind)
            else:
                self.graphs.stop("the model has too many kinds of attention")

    def _check(self, step: Step, cache: Cache) -> None:
        """ValueError: what a kernel would read or write out of bounds for."""
        counts = step.counts
        self._limits.check(counts)
        self._bounds.check(step)
        blocks, block_size = cache.spare_block, cache.shape.block_size
        for name, values, bound in (
            ("slot", step.slots, blocks * block_size),
            ("block", step.block_tables, blocks),
            ("sequence", step.sequences, counts.tables),
            ("sample row", step.sample_rows, counts.rows),
            ("position", step.positions, counts.table_width * block_size),
        ):
            if values.size and not 0 <= int(values.min()) <= int(values.max()) < bound:
                raise ValueError(f"a {name} of the step is not from 0 to {bound - 1}")
