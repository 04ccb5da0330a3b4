"""A step on the device: one buffer, one copy, and at its head where things are in it.

The head tells kernels what differs from step to step, so that a captured graph serves steps of other lengths:
only the arrays of rows and samples, whose numbers are padded, lie where they always do. Behind the step come
the keys of the draws, and for each kind of attention its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..arrays import Int32, UInt32
from ..interface import Inputs
from ..noise import row_keys
from ..step import Counts, Place, Step, layout, size_of
from .work import work_of

HEAD = 64
"""Words of the head, int32 like all of the buffer."""

TABLES, TABLE_WIDTH, SEEN_OFFSETS, SEEN_IDS, SEEN_COUNTS = range(5)
BIAS_OFFSETS, BIAS_IDS, BIAS_VALUES, MASK, MASK_WORDS, KEYS, SAMPLES = range(5, 12)
"""Places in the head: the word at which an array begins, or a number."""

KINDS = 12
"""Place of the first kind of attention: first item, items, first merge, merges. Each kind has four places."""

MOST_KINDS = (HEAD - KINDS) // 4


_ARRAYS_IN_HEAD = {
    TABLES: "block_tables",
    SEEN_OFFSETS: "seen_offsets",
    SEEN_IDS: "seen_ids",
    SEEN_COUNTS: "seen_counts",
    BIAS_OFFSETS: "bias_offsets",
    BIAS_IDS: "bias_ids",
    BIAS_VALUES: "bias_values",
    MASK: "mask",
}


class Kind(NamedTuple):
    """Of attention: layers of one kind share their work. partial_rows: room for partial results."""

    sharing: int
    window: int | None
    partial_rows: int


class Padding(NamedTuple):
    """What a step is filled up to: rows and samples, and the block that rows without a sequence write to."""

    rows: int
    samples: int
    block: int


def padded_counts(counts: Counts, padding: Padding) -> Counts:
    """Counts of the padded step: one more line of block tables, of the rows that were added."""
    return counts._replace(
        rows=padding.rows,
        samples=padding.samples,
        tables=counts.tables + 1,
        table_width=max(counts.table_width, 1),
    )


@lru_cache(maxsize=64)
def places_of(counts: Counts) -> dict[str, Place]:
    """Where the arrays of a step lie in it."""
    return {place.name: place for place in layout(counts)}


@lru_cache(maxsize=64)
def head_of(counts: Counts) -> Int32:
    """A head that tells where the arrays of a step are; not to be changed."""
    places = places_of(counts)
    head = np.zeros(HEAD, np.int32)
    for at, name in _ARRAYS_IN_HEAD.items():
        head[at] = HEAD + places[name].begin // 4
    head[TABLE_WIDTH], head[MASK_WORDS], head[SAMPLES] = counts.table_width, counts.mask_words, counts.samples
    head[KEYS] = HEAD + size_of(counts) // 4
    return head


def fill(step: Step, into: Step, padding: Padding, block_size: int) -> None:
    """Write a step into a larger one, of `padded_counts`. What is added is greedy, and of no sequence."""
    counts = step.counts
    fillers: dict[str, float] = {
        "slots": padding.block * block_size,
        "sequences": counts.tables,
        "top_p": 1,
        "repetition": 1,
        "seen_offsets": int(step.seen_offsets[-1]),
        "bias_offsets": int(step.bias_offsets[-1]),
        "mask": 0xFFFFFFFF,
    }
    for name, place in places_of(into.counts).items():
        if place.begin == place.end:
            continue
        values, target = getattr(step, name), getattr(into, name)
        if name == "block_tables":
            target[: counts.tables, : counts.table_width] = values
            target[: counts.tables, counts.table_width :] = 0
            target[counts.tables :] = padding.block
        else:
            target[: len(values)] = values
            if len(target) > len(values):
                target[len(values) :] = fillers.get(name, 0)


class Staging:
    """A step as it goes to the device: written on the host, copied in one go.

    memory: the buffer on the device, int32. It is replaced by a larger one if it must be, and whoever has its
    address has to look again: `generation` counts that.
    """

    def __init__(self, device: torch.device, words: int) -> None:
        self._device = device
        self._pinned = device.type == "cuda"
        self._larger = Step.of()
        self.generation = 0
        self._allocate(words)

    def write(self, step: Step, padding: Padding | None, block_size: int, kinds: Sequence[Kind]) -> Batch:
        """Send a step, filled up if that is wanted, with the work for these kinds of attention."""
        if padding is not None:
            step = self._filled(step, padding, block_size)
        head = head_of(step.counts).copy()
        keys = row_keys(step.seeds, step.draw_positions).view(np.int32).reshape(-1)
        pieces = [head, step.memory.view(np.int32), keys]
        at = HEAD + len(pieces[1]) + len(keys)
        for index, kind in enumerate(kinds):
            for half, lines in enumerate(work_of(step, *kind)):
                place = KINDS + 4 * index + 2 * half
                head[place : place + 2] = at, len(lines)
                pieces.append(lines.reshape(-1))
                at += lines.size
        if at > len(self.memory):
            self._allocate(2 * at)
        np.concatenate(pieces, out=self._words[:at])
        self.memory[:at].copy_(self._host[:at], non_blocking=True)
        return Batch(step, self.memory, kinds)

    def write_mask(self, batch: Batch, mask: UInt32) -> None:
        """Send the mask of a step's samples, which were sent without it."""
        batch.step.mask[: len(mask)] = mask
        begin = HEAD + places_of(batch.step.counts)["mask"].begin // 4
        words = slice(begin, begin + mask.size)
        # The step's own copy may still be under way: what that takes from here is overwritten by this one.
        self._words[words] = mask.reshape(-1).view(np.int32)
        self.memory[words].copy_(self._host[words], non_blocking=True)

    def _filled(self, step: Step, padding: Padding, block_size: int) -> Step:
        counts = padded_counts(step.counts, padding)
        if self._larger.counts != counts:
            self._larger = Step.within(np.zeros(size_of(counts), np.uint8), counts)
        fill(step, self._larger, padding, block_size)
        return self._larger

    def _allocate(self, words: int) -> None:
        self._host = torch.zeros(words, dtype=torch.int32, pin_memory=self._pinned)
        self._words = self._host.numpy()
        self.memory = torch.zeros(words, dtype=torch.int32, device=self._device)
        self.generation += 1


class Batch:
    """A step that is on the device. step: the same on the host. memory: the buffer.

    missing: kinds of attention that were asked for and not sent with the step.
    """

    def __init__(self, step: Step, memory: Tensor, kinds: Sequence[Kind] = ()) -> None:
        self.step = step
        self.memory = memory
        self.missing: dict[Kind, Tensor] = {}
        self._kinds = {kind: KINDS + 4 * index for index, kind in enumerate(kinds)}
        self._places = places_of(step.counts)

    @classmethod
    def of(cls, step: Step, device: torch.device) -> Batch:
        """A step with a buffer of its own."""
        return Staging(device, size_of(step.counts) + 4 * HEAD).write(step, None, 1, [])

    def array(self, name: str, dtype: torch.dtype = torch.int32) -> Tensor:
        """An array of the step, of 4 bytes a value."""
        place = self._places[name]
        values = self.memory[HEAD + place.begin // 4 : HEAD + place.end // 4]
        return values.view(dtype).view(place.shape)

    def work(self, kind: Kind) -> tuple[Tensor, int]:
        """A buffer, and the word of it where first item, items, first merge and merges of a kind stand."""
        if kind in self._kinds:
            return self.memory, self._kinds[kind]
        if kind not in self.missing:
            items, merges = work_of(self.step, *kind)
            numbers = np.array([4, len(items), 4 + items.size, len(merges)], np.int32)
            words = np.concatenate([numbers, items.reshape(-1), merges.reshape(-1)])
            self.missing[kind] = torch.from_numpy(words).to(self.memory.device)
        return self.missing[kind], 0

    def inputs(self) -> Inputs:
        """The arrays that a decoder passes on; `sampling` is the batch itself."""
        names = ("tokens", "positions", "slots", "sequences", "block_tables", "sample_rows")
        return Inputs(**{name: self.array(name) for name in names}, sampling=self)
