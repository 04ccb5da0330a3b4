"""Has a backend compute what was planned."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from kernels.arrays import Float32, Int32
from kernels.native.mapped import MappedFiles
from kernels.program import Pending, Program

from .grammar.masks import mask_writer
from .models.rope import Rotations
from .roofline import Traffic
from .step_builder import StepBuilder
from .step_plan import StepPlan
from .types import EngineError

LOST = "the model's file was cut short or replaced in place while it was in use; restart termchat"


class StepResult(NamedTuple):
    """tokens: one for each sample row, in the plan's order; -1 where the logits were bad.

    logits: float32 [sample rows, vocabulary], valid until the next step; None unless asked for. expert_bytes:
    see `kernels.program.StepOutput`.
    """

    tokens: list[int]
    logits: Float32 | None = None
    expert_bytes: int = 0

    @property
    def computed(self) -> bool:
        """See `Flight`: a runner that computes at once returns this."""
        return True

    def result(self) -> StepResult:
        """Itself."""
        return self


class Flight(Protocol):
    """A planned step that was launched."""

    @property
    def computed(self) -> bool:
        """See `kernels.program.Pending`."""

    def result(self) -> StepResult:
        """Wait for it.

        Raises EngineError(engine_failed): the file was cut short, so what came out means nothing.
        MemoryError: there is none for this step.
        """


class Runner(Protocol):
    """What the engine thread needs of a model."""

    backend: str
    device: str
    exact: bool
    traffic: Traffic
    weight_bytes: int

    @property
    def replaced(self) -> tuple[str, ...]:
        """Kernels that plain torch computes in place of."""

    @property
    def working_bytes(self) -> int:
        """Of buffers and captured graphs, on a device with memory of its own."""

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """Copy whole blocks, (source, target) each, all read before the first is written."""

    def prepare(self, plan: StepPlan) -> None:
        """Lay out a step to come; another one may be under way."""

    def launch(self, plan: StepPlan, *, logits: bool, prepared: bool = False) -> Flight:
        """Begin one step: see `ModelRunner`."""

    def read_bandwidth(self) -> float | None:
        """Measured peak of reading the weights, bytes a second; None where there is nothing to measure."""

    def close(self) -> None:
        """Free memory and threads."""


class Owner(Protocol):
    """What a runner needs of who owns weights and KV memory: a backend, or the ranks of a parallel model."""

    name: str
    device: str
    exact: bool
    weight_bytes: int

    @property
    def replaced(self) -> tuple[str, ...]:
        """See `Backend`."""

    @property
    def working_bytes(self) -> int:
        """See `Backend`."""

    def copy_blocks(self, sources: Int32, targets: Int32) -> None:
        """See `Backend`, as the others."""

    def read_bandwidth(self, nbytes: int) -> float:
        """Bytes a second."""

    def close(self) -> None:
        """Free threads and memory."""


class Launched(NamedTuple):
    """A step that a backend computes. files: where the weights come from."""

    pending: Pending
    files: MappedFiles | None

    @property
    def computed(self) -> bool:
        """See `Flight`."""
        return self.pending.computed

    def result(self) -> StepResult:
        """See `Flight`."""
        output = self.pending.result()
        if self.files is not None and self.files.lost:
            raise EngineError("engine_failed", LOST)
        return StepResult(output.tokens.tolist(), output.logits, output.expert_bytes)


class ModelRunner:
    """Runs a captured program on a backend."""

    def __init__(
        self,
        backend: Owner,
        program: Program,
        traffic: Traffic,
        block_size: int,
        files: MappedFiles | None = None,
        rotations: Rotations | None = None,
    ) -> None:
        """files: where the weights come from. rotations: of the program, made as positions come."""
        self.backend = backend.name
        self.device = backend.device
        self.exact = backend.exact
        self.traffic = traffic
        self.weight_bytes = backend.weight_bytes
        self._backend = backend
        self._program = program
        self._files = files
        self._rotations = rotations
        self._steps = StepBuilder(block_size)

    @property
    def replaced(self) -> tuple[str, ...]:
        """See `Runner`."""
        return self._backend.replaced

    @property
    def working_bytes(self) -> int:
        """See `Runner`."""
        return self._backend.working_bytes

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """See `Runner`."""
        pairs = np.array(copies, np.int32)
        self._backend.copy_blocks(pairs[:, 0].copy(), pairs[:, 1].copy())

    def prepare(self, plan: StepPlan) -> None:
        """See `Runner`."""
        self._steps.lay_out(plan)

    def launch(self, plan: StepPlan, *, logits: bool, prepared: bool = False) -> Launched:
        """Copy shared blocks that are about to be written, then begin to compute the plan's runs.

        prepared: whether this plan is the one that was prepared last.
        Raises MemoryError: there is none for this step; copies that were made are no longer in the plan.
        """
        if plan.copies:
            self.copy_blocks(plan.copies)
            plan.copies.clear()
        if self._rotations is not None:
            self._rotations.reach(max(run.end for run in plan.runs))
        step = self._steps.finish(plan) if prepared else self._steps.build(plan)
        masks = mask_writer(step, plan.runs)
        return Launched(self._program.launch(step, logits=logits, write_mask=masks), self._files)

    def read_bandwidth(self) -> float | None:
        """Peak over a buffer of the weights' size, so that caches help as much as they help the weights."""
        return self._backend.read_bandwidth(self.traffic.all_weight_bytes)

    def close(self) -> None:
        """Free the backend."""
        self._backend.close()
