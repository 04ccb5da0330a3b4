"""A step on the device: one buffer, one copy, and at its head where things are in it.

The head tells kernels what differs from step to step, so that a captured graph serves steps of other lengths:
only the arrays of rows and samples, whose numbers are padded, lie where they always do. Behind the step come
the keys of the draws, and for each kind of attention its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..interface import Inputs, Int32
from ..noise import row_keys
from ..step import Counts, Step, layout, size_of
from .work import work_of

HEAD = 64
"""Words of the head, int32 like all of the buffer."""

TABLES, TABLE_WIDTH, SEEN_OFFSETS, SEEN_IDS, SEEN_COUNTS = range(5)
BIAS_OFFSETS, BIAS_IDS, BIAS_VALUES, MASK, MASK_WORDS, KEYS, SAMPLES = range(5, 12)
"""Places in the head: the word at which an array begins, or a number."""

KINDS = 12
"""Place of the first kind of attention: first item, items, first merge, merges. Each kind has four places."""

MOST_KINDS = (HEAD - KINDS) // 4


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


def fill(step: Step, into: Step, padding: Padding, block_size: int) -> None:
    """Write a step into a larger one, of `padded_counts`. What is added is greedy, and of no sequence."""
    counts = step.counts
    for place in layout(into.counts):
        values, target = getattr(step, place.name), getattr(into, place.name)
        if place.name == "block_tables":
            target[: counts.tables, : counts.table_width] = values
            target[: counts.tables, counts.table_width :] = 0
            target[counts.tables :] = padding.block
            continue
        fillers: dict[str, float] = {
            "slots": padding.block * block_size,
            "sequences": counts.tables,
            "top_p": 1,
            "repetition": 1,
            "seen_offsets": int(step.seen_offsets[-1]),
            "bias_offsets": int(step.bias_offsets[-1]),
            "mask": 0xFFFFFFFF,
        }
        target[: len(values)] = values
        target[len(values) :] = fillers.get(place.name, 0)


class Staging:
    """A step as it goes to the device: written on the host, copied in one go.

    memory: the buffer on the device, int32. It is replaced by a larger one if it must be, and whoever has its
    address has to look again: `generation` counts that.
    """

    def __init__(self, device: torch.device, words: int) -> None:
        self._device = device
        self._pinned = device.type == "cuda"
        self.generation = 0
        self._allocate(words)

    def write(self, step: Step, padding: Padding | None, block_size: int, kinds: Sequence[Kind]) -> Batch:
        """Send a step, filled up if that is wanted, with the work for these kinds of attention."""
        counts = step.counts if padding is None else padded_counts(step.counts, padding)
        end = 4 * HEAD + size_of(counts)
        end += -end % 16
        if end + 8 * counts.samples > self._host.nbytes:
            self._allocate((end + 8 * counts.samples) // 2)
        host = self._host.numpy()
        # All but the work is known in size, so the step is written straight into what is copied.
        sent = Step.within(host[4 * HEAD :], counts)
        if padding is None:
            sent.memory[:] = step.memory[: len(sent.memory)]
        else:
            fill(step, sent, padding, block_size)
        words = host.view(np.int32)
        places = {place.name: HEAD + place.begin // 4 for place in layout(counts)}
        head = words[:HEAD]
        head[:] = 0
        head[TABLES], head[TABLE_WIDTH] = places["block_tables"], counts.table_width
        for at, name in (
            (SEEN_OFFSETS, "seen_offsets"),
            (SEEN_IDS, "seen_ids"),
            (SEEN_COUNTS, "seen_counts"),
            (BIAS_OFFSETS, "bias_offsets"),
            (BIAS_IDS, "bias_ids"),
            (BIAS_VALUES, "bias_values"),
            (MASK, "mask"),
        ):
            head[at] = places[name]
        head[MASK_WORDS], head[SAMPLES] = counts.mask_words, counts.samples
        head[KEYS] = at = end // 4
        keys = row_keys(sent.seeds, sent.draw_positions).view(np.int32).reshape(-1)
        words[at : at + len(keys)] = keys
        at += len(keys)
        pieces: list[tuple[int, Int32]] = []
        for index, kind in enumerate(kinds):
            work = work_of(sent, *kind)
            place = head[KINDS + 4 * index : KINDS + 4 * index + 4]
            for half, lines in enumerate(work):
                place[2 * half : 2 * half + 2] = at, len(lines)
                pieces.append((at, lines))
                at += lines.size
        if 4 * at > self._host.nbytes:
            kept = host[: 4 * int(head[KEYS]) + 4 * len(keys)].copy()
            self._allocate(2 * at)
            self._host.numpy()[: len(kept)] = kept
            words = self._host.numpy().view(np.int32)
            sent = Step.read(self._host.numpy()[4 * HEAD :])
        for begin, lines in pieces:
            words[begin : begin + lines.size] = lines.reshape(-1)
        self.memory.view(torch.uint8)[: 4 * at].copy_(self._host[: 4 * at], non_blocking=True)
        return Batch(sent, self.memory, kinds)

    def _allocate(self, words: int) -> None:
        self._host = torch.zeros(4 * words, dtype=torch.uint8, pin_memory=self._pinned)
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
        self._places = {place.name: place for place in layout(step.counts)}

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
