"""Drafts from a smaller model, which has its keys and values in the blocks of the model it guesses for.

A draft is what the smaller model draws by the reply's own sampling settings with the noise of that very
position. So where both models think alike the draft is right, at any temperature.
"""

from __future__ import annotations

import logging
import time
from array import array
from weakref import WeakSet

from ..runner import Runner
from ..scheduler import REGROWTH
from ..sequence import Sequence
from ..step_plan import Run, StepPlan
from .drafter import Pass

log = logging.getLogger(__name__)


class ModelDrafter:
    """A draft model: its cache has a slot for each slot of the other's, with the same number.

    It computes a text when it is to guess how that goes on: first what came since the last time, or was found
    in the prefix cache, then token by token. `BlockTable.drafted` says how far it is. Keys of a block that
    several sequences share are written once or again with the same bits, so that harms nobody.

    Where a pass does not fit into the memory there are fewer drafts, and the next passes are smaller: the
    model's own steps are not made smaller for it.
    """

    def __init__(
        self,
        name: str,
        runner: Runner,
        *,
        vocabulary: int,
        known: int,
        context_length: int,
        rows: int,
        block_size: int,
        bytes_per_token: int = 0,
    ) -> None:
        """vocabulary: ids of the model it guesses for; known: its own. rows: of a pass, at most."""
        self.name = name
        self.memory_bytes = runner.weight_bytes
        self.bytes_per_token = bytes_per_token
        self._runner = runner
        self._vocabulary = vocabulary
        self._known = known
        self._context_length = context_length
        self._most_rows = self._rows = rows
        self._block_size = block_size
        self._foreign: WeakSet[Sequence] = WeakSet()  # with ids that only the other model has

    def limit(self, sequence: Sequence) -> int:
        """See `ComputingDrafter`: the tokens before a guess have to fit into the draft model's context."""
        if sequence in self._foreign:
            return 0
        return max(0, self._context_length - len(sequence.tokens) + 1)

    def guess(self, plan: StepPlan) -> list[Pass]:
        """See `ComputingDrafter`."""
        if plan.copies:
            self._copy(plan)
        wanted = {run.sequence.id: run.count - 1 for run in plan.runs if run.decoding and run.count > 1}
        if not wanted:
            return []
        sequences = [run.sequence for run in plan.runs if run.sequence.id in wanted]
        for sequence in sequences:
            del sequence.drafts[:]
        passes: list[Pass] = []
        runs = self._catching_up(sequences)
        while runs:
            try:
                passes.append(self._compute(runs))
            except MemoryError as error:
                self._rows = max(1, sum(run.count for run in runs) // 2)
                log.debug("a pass of the draft model did not fit: %s", error)
                break
            runs = [
                Run(run.sequence, run.end, 1, 1)
                for run in runs
                if 0 < len(run.sequence.drafts) < wanted[run.sequence.id]
                and len(run.sequence.tokens) + len(run.sequence.drafts) == run.end + 1
                and run.sequence.drafts[-1] not in run.sequence.ends
            ]
        return passes

    def close(self) -> None:
        """Free the draft model."""
        self._runner.close()

    def _copy(self, plan: StepPlan) -> None:
        """Copy the plan's blocks. Where there is no memory for it, nobody knows what is in them."""
        try:
            self._runner.copy_blocks(plan.copies)
        except MemoryError as error:
            log.debug("blocks of the draft model could not be copied: %s", error)
            targets = {target for _, target in plan.copies}
            for run in plan.runs:
                table = run.sequence.table
                for index, block in enumerate(table.blocks):
                    if block in targets:
                        table.drafted = min(table.drafted, index * self._block_size)

    def _catching_up(self, sequences: list[Sequence]) -> list[Run]:
        """Runs of what the draft model lacks of each text; without a sample where that is not all.

        Those that lack the least come first. Shared blocks are filled for one sequence; the others go on in
        the next step.
        """
        runs: list[Run] = []
        room, filling = self._rows, set[int]()
        for sequence in sorted(sequences, key=lambda each: len(each.tokens) - each.table.drafted):
            length, table = len(sequence.tokens), sequence.table
            # The last token is computed anyway, else there would be nothing to draw from.
            start = min(table.drafted, length - 1)
            block = table.blocks[start // self._block_size]
            count = min(length - start, room)
            if (
                count == 0
                or block in filling
                or self._lacks(sequence, sequence.tokens[start : start + count])
            ):
                continue
            filling.add(block)
            runs.append(Run(sequence, start, count, int(start + count == length)))
            room -= count
        return runs

    def _lacks(self, sequence: Sequence, tokens: array[int]) -> bool:
        """Whether the draft model knows an id less than the text or its settings name: it is out then."""
        if self._known == self._vocabulary:
            return False
        ids = max(max(tokens), max(sequence.sampler.bias[0], default=0))
        # A mask has a bit for each id of the other model.
        if ids < self._known and sequence.constraint is None:
            return False
        self._foreign.add(sequence)
        return True

    def _compute(self, runs: list[Run]) -> Pass:
        """A pass of these runs; what it draws is added to the drafts."""
        started = time.perf_counter()
        plan = StepPlan(runs)
        result = self._runner.launch(plan, logits=False).result()
        for run, drawn in zip(runs, plan.by_run(result.tokens), strict=True):
            run.sequence.table.drafted = run.end
            # Bad logits, and ids that the model does not have, are no guesses.
            run.sequence.drafts.extend(token for token in drawn if 0 <= token < self._vocabulary)
        self._rows = min(self._most_rows, self._rows + 1 + self._rows // REGROWTH)
        seconds = time.perf_counter() - started
        return Pass(plan.tokens, seconds, self._runner.traffic.step_bytes(plan) + result.expert_bytes)
