"""The ranks of a model as the owner and the program that a runner computes with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernels.arrays import Float32, Int32
from kernels.program import Limits, StepOutput, WriteMask
from kernels.step import Step, layout

from .channel import COPIES, MASK, RESULT_HEADER, STEP, STEP_WITH_LOGITS, frame
from .team import Team


class ParallelProgram:
    """Owner and program of a `ModelRunner`."""

    working_bytes = 0

    def __init__(
        self,
        team: Team,
        limits: Limits,
        name: str,
        device: str,
        exact: bool,
        weight_bytes: int,
        replaced: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.device = device
        self.exact = exact
        self.weight_bytes = weight_bytes
        self.replaced = replaced
        self._team = team
        self._limits = limits

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """Before the next step; the ranks are told together with it."""
        pairs = frame(COPIES, np.stack((sources, targets)).astype(np.int32))
        for rank in range(self._team.split.ranks):
            self._team.queue(rank, pairs)

    def launch(self, step: Step, *, logits: bool = False, write_mask: WriteMask | None = None) -> PendingStep:
        """Send the step to all ranks. ValueError: it exceeds the limits. EngineError: a rank has failed.

        A mask that is not written yet follows, to the rank that samples, while they compute.
        """
        self._limits.check(step.counts)
        # The mask is the last array of a step.
        known = step.memory if write_mask is None else step.memory[: layout(step.counts)[-1].begin]
        parts = frame(STEP_WITH_LOGITS if logits else STEP, known)
        for rank in range(self._team.split.ranks):
            self._team.queue(rank, parts)
        self._team.flush()
        if write_mask is not None:
            write_mask()
            self._team.queue(self._team.split.sampling, frame(MASK, step.mask))
            self._team.flush()
        return PendingStep(self._team, step.counts.samples)

    def read_bandwidth(self, nbytes: int) -> float:
        """Of all ranks at the same time, each with its part of the bytes; in bytes a second."""
        ranks = self._team.split.ranks
        found = self._team.ask("bandwidth", [{"nbytes": -(-nbytes // ranks)}] * ranks)
        return float(sum(each["bandwidth"] for each in found))

    def close(self) -> None:
        """End the ranks."""
        self._team.close()


class PendingStep(NamedTuple):
    """A step that the ranks compute."""

    team: Team
    samples: int

    @property
    def computed(self) -> bool:
        """See `Pending`: other processes do it."""
        return False

    def result(self) -> StepOutput:
        """Wait for all ranks. EngineError(engine_failed): one has ended, or hangs."""
        tokens, logits, expert_bytes = np.empty(0, np.int32), None, 0
        for message in self.team.answers():
            samples, columns, read = RESULT_HEADER.unpack_from(message.body)
            expert_bytes += read
            if samples:
                tokens = np.frombuffer(message.body, np.int32, samples, RESULT_HEADER.size)
                if columns:
                    values: Float32 = np.frombuffer(
                        message.body, np.float32, samples * columns, RESULT_HEADER.size + tokens.nbytes
                    )
                    logits = values.reshape(samples, columns)
        return StepOutput(tokens, logits, expert_bytes)
