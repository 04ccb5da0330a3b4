"""Lays out a plan as the arrays of a step."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.arrays import Int32
from kernels.step import Counts, Step, size_of

from .grammar.masks import mask_words
from .sampler import FLOAT32_MAX, Pairs, SamplerState
from .step_plan import StepPlan

_ROOM = 64
"""Seen and biased tokens are given room in pieces of so many: arrays that stay where they are cost less."""


class _Layout:
    """A buffer, the step in it, and the samplers whose settings that holds."""

    def __init__(self) -> None:
        self._memory = np.zeros(1 << 12, np.uint8)
        self.step = Step.within(self._memory, Counts())
        self.samplers: list[SamplerState] = []
        self.plain = True  # whether they look at no token that comes

    def of(self, counts: Counts) -> Step:
        """A step of this size, in the same place as the last one if that had the same."""
        if counts != self.step.counts:
            if size_of(counts) > self._memory.nbytes:
                self._memory = np.zeros(2 * size_of(counts), np.uint8)
            self.step = Step.within(self._memory, counts)
            self.step.seen_offsets[:] = self.step.bias_offsets[:] = 0
            self.samplers, self.plain = [], True
        return self.step


class StepBuilder:
    """Builds steps in two buffers by turns: one may be written while the other is computed.

    What a step holds comes in three parts. Most is clear before the tokens are that it goes on from; these,
    and what samplers have seen, are filled in when they are. The mask takes longest and is needed last, so
    whoever has the step computed has it written meanwhile.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._now, self._next = _Layout(), _Layout()

    def build(self, plan: StepPlan) -> Step:
        """The step of a plan, without its mask. Its arrays hold until the build after the next."""
        step = self.lay_out(plan)
        self._fill_in(step, plan)
        return step

    def finish(self, plan: StepPlan) -> Step:
        """The step of the plan that was laid out last, whose tokens are known now; without its mask."""
        step = self._now.step
        if mask_words(plan.runs) != step.counts.mask_words:
            return self.build(plan)
        if not self._now.plain:
            counts = _counts(self._now.samplers)
            if (counts.seen, counts.biased) != (step.counts.seen, step.counts.biased):
                return self.build(plan)
        self._fill_in(step, plan)
        return step

    def lay_out(self, plan: StepPlan) -> Step:
        """The step of a plan without what depends on the latest tokens."""
        self._now, self._next = self._next, self._now
        # Gathered in arrays of C integers: to fill numpy's piece by piece takes ten times as long.
        positions, slots = array("i"), array("i")
        sequences, tables = array("i"), array("i")
        size = self._block_size
        width = max((len(run.sequence.table.blocks) for run in plan.runs), default=0)
        for index, run in enumerate(plan.runs):
            start, end, blocks = run.start, run.end, run.sequence.table.blocks
            positions.extend(range(start, end))
            slots.extend([blocks[i // size] * size + i % size for i in range(start, end)])
            sequences.extend([index] * run.count)
            tables += blocks
            tables.extend([0] * (width - len(blocks)))
        samples = plan.samples()
        samplers = [sample.sampler for sample in samples]
        counts = _counts(samplers)._replace(
            rows=len(positions), tables=len(plan.runs), table_width=width, mask_words=mask_words(plan.runs)
        )
        step = self._now.of(counts)
        step.positions[:] = positions
        step.slots[:] = slots
        step.sequences[:] = sequences
        step.block_tables.reshape(-1)[:] = tables
        step.sample_rows[:] = [sample.row for sample in samples]
        if samplers != self._now.samplers:
            _write_settings(step, samplers)
            self._now.samplers = samplers
            self._now.plain = all(sampler.plain for sampler in samplers)
        step.draw_positions[:] = [sample.position for sample in samples]
        return step

    def _fill_in(self, step: Step, plan: StepPlan) -> None:
        tokens = array("i")
        for run in plan.runs:
            tokens += run.tokens
        step.tokens[:] = tokens
        _write_seen(step, self._now.samplers)


def sampling_step(samplers: list[SamplerState], positions: list[int]) -> Step:
    """A step without rows: sample i draws the token at positions[i] of its sequence as samplers[i] says."""
    counts = _counts(samplers)
    step = Step.within(np.zeros(size_of(counts), np.uint8), counts)
    _write_settings(step, samplers)
    step.draw_positions[:] = positions
    _write_seen(step, samplers)
    return step


def _counts(samplers: list[SamplerState]) -> Counts:
    """The counts that the samplers decide."""
    seen = sum([len(sampler.seen[0]) for sampler in samplers])
    biased = sum([len(sampler.bias[0]) for sampler in samplers])
    return Counts(samples=len(samplers), seen=seen + -seen % _ROOM, biased=biased + -biased % _ROOM)


def _write_settings(step: Step, samplers: list[SamplerState]) -> None:
    """What does not change from token to token."""
    params = [sampler.params for sampler in samplers]
    step.temperature[:] = [min(p.temperature, FLOAT32_MAX) for p in params]
    step.top_k[:] = [min(p.top_k, 2**31 - 1) for p in params]
    step.top_p[:] = [p.top_p for p in params]
    step.min_p[:] = [p.min_p for p in params]
    step.repetition[:] = [p.repetition_penalty for p in params]
    step.presence[:] = [p.presence_penalty for p in params]
    step.frequency[:] = [p.frequency_penalty for p in params]
    step.seeds[:] = np.array([sampler.seed for sampler in samplers], np.uint64)


def _write_seen(step: Step, samplers: list[SamplerState]) -> None:
    """What does: which tokens are penalized or biased."""
    if step.counts.seen:
        _join([sampler.seen for sampler in samplers], step.seen_offsets, step.seen_ids, step.seen_counts)
    if step.counts.biased:
        _join([sampler.bias for sampler in samplers], step.bias_offsets, step.bias_ids, step.bias_values)


def _join(pairs: list[Pairs], offsets: Int32, ids: Int32, values: NDArray[Any]) -> None:
    """Write lists of different lengths one after the other."""
    offsets[0] = 0
    np.cumsum([len(some) for some, _ in pairs], out=offsets[1:])
    if total := offsets[-1]:
        np.concatenate([np.asarray(some, ids.dtype) for some, _ in pairs], out=ids[:total])
        np.concatenate([np.asarray(some, values.dtype) for _, some in pairs], out=values[:total])
