"""Who computes what in the next step: token budget, admission, preemption.

There is no prefill phase and no decode phase: in each step every running sequence gets some of its remaining
tokens under one budget, then waiting ones are admitted (the rule of vLLM V1; chunks mixed with decode as in
Sarathi-Serve, arXiv 2403.02310).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from .blocks import BlockPool, BlockTable, Key
from .chunking import ChunkBudget
from .quotas import SCORED_ROWS, Standing, quotas
from .sequence import Sequence
from .step_plan import StepPlan

REGROWTH = 32
"""Where memory was short, a step may have more rows than the last one, by one and this part of its rows."""


def most_samples(sequences: int, drafts: int = 0) -> int:
    """Sample rows of a step at most: the last token of every sequence, drafts of all, and scored rows."""
    return sequences + drafts + SCORED_ROWS


class Scheduler:
    """Queues of sequences and the rules that move them. Knows blocks by number, nothing of devices."""

    def __init__(
        self, pool: BlockPool, chunks: ChunkBudget, *, max_batch_tokens: int, max_sequences: int
    ) -> None:
        self.pool = pool
        self.chunks = chunks
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = max_sequences
        self._asked = max_batch_tokens, max_sequences
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in order of admission
        self.focused: int | None = None
        self._reserved: dict[int, int] = {}  # by sequence: tokens that have blocks for the step planned ahead
        self.preemptions = 0
        self.prefix_tokens_saved = 0

    @property
    def tables(self) -> list[BlockTable]:
        """The block tables that exist, for the audit."""
        return [sequence.table for sequence in (*self.running, *self.waiting)]

    @property
    def is_narrow(self) -> bool:
        """Whether steps have fewer rows than was asked for, as memory was short."""
        return self.max_batch_tokens < self._asked[0]

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; it is admitted by a later plan. Numbers say who came first, not how long the
        tokenizer took.
        """
        place = len(self.waiting)
        while place and self.waiting[place - 1].id > sequence.id and not self.waiting[place - 1].admitted:
            place -= 1
        self.waiting.insert(place, sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that ended, in whatever state it is, and give its blocks back."""
        queue = self.running if sequence in self.running else self.waiting
        queue.remove(sequence)
        self.pool.release(sequence.table)

    def plan(self) -> StepPlan:
        """The next step: admit who fits, then runs for the running ones, oldest first."""
        plan = StepPlan()
        self._admit(plan)
        counts = self._quotas([Standing.now(sequence) for sequence in self.running])
        index = 0
        while index < len(self.running):
            sequence = self.running[index]
            count = counts.get(sequence.id, 0)
            if count == 0 or self._reserve(plan, sequence, count):
                if count:
                    plan.runs.append(Standing.now(sequence).run(count))
                index += 1
            elif len(self.running) == 1:
                plan.exhausted.append(sequence)
                break
            else:
                self._preempt(self.running.pop())  # the newest: it may be this very sequence
        self._add_drafts(plan)
        return plan

    def ahead(self, plan: StepPlan) -> StepPlan | None:
        """The step that comes after one that is being computed, as long as no reply ends by that; None: it
        can't be told.

        It can unless somebody is to be admitted, memory is short, or there are drafts, as nobody knows how
        many will be right. Its blocks are reserved, and stay with their sequences if it comes otherwise:
        `holds` says so.
        """
        if self._admits or self.is_narrow or any(run.sequence.drafts for run in plan.runs):
            return None
        behind = {run.sequence.id: Standing.after(run) for run in plan.runs}
        standings = [behind.get(each.id) or Standing.now(each) for each in self.running]
        standings = [each for each in standings if each.remaining]  # what is scored to its end takes no share
        counts = self._quotas(standings)
        runs = [each.run(count) for each in standings if (count := counts.get(each.sequence.id, 0))]
        missing = [self._missing(run.sequence, run.end) for run in runs]
        if (
            not runs
            or sum(missing) > self.pool.available
            or any(self._copies(run.sequence, run.start) for run in runs)
        ):
            return None
        for run, count in zip(runs, missing, strict=True):
            self.pool.extend(run.sequence.table, count)
            self._reserved[run.sequence.id] = run.end
        return StepPlan(runs)

    def holds(self, plan: StepPlan) -> bool:
        """Whether this, planned ahead, can be the next step: its sequences have come as far as was thought,
        and nobody is to be admitted.
        """
        running = set(map(id, self.running))
        return not self._admits and all(
            run.start == (sequence := run.sequence).computed
            and run.count <= (left := sequence.remaining)
            and run.samples == (run.count if sequence.score else run.count == left)
            and not sequence.drafts
            and id(sequence) in running
            for run in plan.runs
        )

    @property
    def _admits(self) -> bool:
        """Whether somebody waits for whom there is a place among those that run."""
        return bool(self.waiting) and len(self.running) < self.max_sequences

    def withdraw(self, plan: StepPlan, rows: int) -> None:
        """The step of a plan was not computed, for want of memory. The next one has no more than `rows`; the
        newest sequences wait again if they are more than that. Each step that is computed allows some more.

        So does each whose block was to be copied, as nobody knows whether it was. What was reserved for the
        others stays theirs.
        """
        self._reserved.clear()
        for run in plan.runs:
            del run.sequence.drafts[:]
            run.sequence.table.drafted = min(run.sequence.table.drafted, run.sequence.computed)
        self.max_batch_tokens = rows
        self.max_sequences = min(self.max_sequences, rows)
        unsure = {target for _, target in plan.copies}
        for place in reversed(range(len(self.running))):
            if place >= rows or not unsure.isdisjoint(self.running[place].table.blocks):
                self._preempt(self.running.pop(place))

    def commit(self, plan: StepPlan, accepted: list[list[int]]) -> None:
        """The step is done. accepted: for each run the tokens that its sequence goes on with.

        All rows but those of rejected drafts are in the cache, and the blocks they filled may be shared. What
        else drafts took is given back, so that nothing is left of them.
        """
        for run, tokens in zip(plan.runs, accepted, strict=True):
            sequence = run.sequence
            if run.decoding:
                sequence.drafts_tried.add(run.count - 1)
                sequence.drafts_kept.add(len(tokens) - 1)
            rejected = 0 if sequence.score else run.samples - len(tokens)
            del sequence.drafts[:]
            for token in tokens:
                sequence.append(token)
            sequence.computed = run.end - rejected
            sequence.table.drafted = min(sequence.table.drafted, sequence.computed)
            self.pool.register(sequence.table, sequence.tokens, sequence.computed)
            kept = max(sequence.computed, self._reserved.get(sequence.id, 0))
            self.pool.shrink(sequence.table, self.pool.blocks_for(kept))
        self._reserved.clear()
        rows, sequences = self._asked
        if self.is_narrow:
            self.max_batch_tokens = min(rows, self.max_batch_tokens + 1 + self.max_batch_tokens // REGROWTH)
            self.max_sequences = min(sequences, self.max_batch_tokens)

    def _admit(self, plan: StepPlan) -> None:
        """Move waiting sequences to the running ones while places and blocks last.

        The focused one first, then by arrival.
        """
        if not self.waiting or len(self.running) >= self.max_sequences:
            return
        being_computed = self._keys_being_computed()
        for sequence in sorted(self.waiting, key=lambda sequence: sequence.id != self.focused):
            blocks, next_key = self._beginning(sequence)
            if next_key in being_computed:
                continue  # a running sequence fills exactly this block now: wait for it and share it
            if not self._fits(sequence, blocks):
                if not self.running:
                    plan.exhausted.append(sequence)  # the whole pool is too small for what it has become
                return  # no overtaking: a large prompt would wait for ever
            self.waiting.remove(sequence)
            self.pool.adopt(sequence.table, blocks)
            # At least one token is computed, else there would be no logits to sample from.
            sequence.computed = min(len(blocks) * self.pool.block_size, len(sequence.tokens) - 1)
            if not sequence.admitted:  # what it computed itself before it was preempted saved nothing
                sequence.admitted = True
                sequence.cached = sequence.computed
                self.prefix_tokens_saved += sequence.computed
            self.running.append(sequence)
            if len(self.running) >= self.max_sequences:
                return
            if next_key is not None:
                being_computed.add(next_key)

    def _beginning(self, sequence: Sequence) -> tuple[list[int], Key | None]:
        """Cached blocks a waiting sequence can begin with, and the key of the next full block."""
        if sequence.score:
            return [], None  # the logits of every token are wanted, so every token is computed
        blocks, next_key = self.pool.match(sequence.tokens)
        fully_matched = len(blocks) * self.pool.block_size >= len(sequence.tokens)
        if fully_matched and self.pool.available <= self.pool.idle(blocks):
            # The last token is computed again, into a copy of the last block; with no block for a copy, that
            # whole block is computed again.
            blocks.pop()
        return blocks, next_key

    def _fits(self, sequence: Sequence, blocks: list[int]) -> bool:
        """Whether there is room for all tokens of a waiting sequence and a little headroom.

        Headroom: a block for each running sequence, so that an admission is not followed by a preemption at
        once.
        """
        copies_last = len(blocks) * self.pool.block_size >= len(sequence.tokens)
        wanted = self.pool.blocks_for(len(sequence.tokens)) - len(blocks) + copies_last
        outstanding = sum(
            max(0, self.pool.blocks_for(len(other.tokens)) - len(other.table.blocks))
            for other in self.running
        )
        room = self.pool.available - self.pool.idle(blocks) - outstanding
        return wanted + len(self.running) <= room

    def _keys_being_computed(self) -> set[Key]:
        """Keys of the blocks that running sequences are about to fill."""
        size = self.pool.block_size
        keys: set[Key] = set()
        for sequence in self.running:
            table, start = sequence.table, len(sequence.table.chain) * size
            if start + size <= len(sequence.tokens):
                keys.add((table.node, sequence.tokens[start : start + size].tobytes()))
        return keys

    def _quotas(self, standings: list[Standing]) -> dict[int, int]:
        """Tokens of the next step, by the number of a sequence."""
        beside = self.chunks.limit()
        return quotas(standings, most=self.max_batch_tokens, most_beside=beside, focused=self.focused)

    def _reserve(self, plan: StepPlan, sequence: Sequence, count: int) -> bool:
        """Make blocks ready for the next `count` tokens of a sequence; False if there are not enough."""
        table = sequence.table
        missing = self._missing(sequence, sequence.computed + count)
        copies = self._copies(sequence, sequence.computed)
        if missing + copies > self.pool.available:
            return False
        if copies:
            written = sequence.computed // self.pool.block_size
            plan.copies.append(self.pool.copy_on_write(table, written))
        self.pool.extend(table, missing)
        return True

    def _missing(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that a sequence lacks for its first tokens."""
        return max(0, self.pool.blocks_for(tokens) - len(sequence.table.blocks))

    def _copies(self, sequence: Sequence, position: int) -> bool:
        """Whether the block of a position is shared, so that it has to be copied before that is written."""
        written = position // self.pool.block_size
        return written < len(sequence.table.blocks) and self.pool.needs_copy(sequence.table, written)

    def _add_drafts(self, plan: StepPlan) -> None:
        """Let drafts have the rows and blocks that are left: nobody waits or is preempted for them."""
        rows = self.max_batch_tokens - plan.tokens
        for index, run in enumerate(plan.runs):
            count = run.count + min(len(run.sequence.drafts), rows)
            if count > run.count and self._reserve(plan, run.sequence, count):
                plan.runs[index] = replace(run, count=count, samples=count)
                rows -= count - run.count

    def _preempt(self, sequence: Sequence) -> None:
        """Take a sequence's blocks away; it comes back first and finds what is left of its own prefix."""
        self.pool.release(sequence.table)
        del sequence.drafts[:]
        sequence.computed = 0
        self.waiting.appendleft(sequence)
        self.preemptions += 1
