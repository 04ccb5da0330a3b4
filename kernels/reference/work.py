"""Which rows of a step are attended together, and where their keys lie: decided on the host, once a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..cache_format import CachedLayer
from ..step import Step
from .cache import PagedCache

TILE = 4
"""Rows of a tile of queries: few, as a decode step has only heads / kv_heads rows that share a key head."""

KEYS = 128
"""Keys of a group. Groups are aligned to absolute positions; a block may not straddle two."""

SEGMENT_ROWS = 64
"""Most rows of a segment. Keys that none of its rows may see are not touched."""

WORK_SCORES = 1 << 20
"""Scores that one piece of work may hold at a time."""

PART_VALUES = 1 << 19
"""Keys (or values) gathered at a time, in float32 values."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of rows of one sequence, and the groups of keys they see."""

    start: int
    rows: int
    sequence: int
    first_group: int
    groups: int


@dataclass(frozen=True, slots=True)
class Work:
    """Segments of equally many rows, attended in one go; the groups that a segment lacks are hidden.

    index: int64 [segments * rows], rows of the step. pages: int64 [groups, pages of all segments and heads].
    hidden: bool [groups, segments, 1, stacked rows, KEYS], keys that a row may not see; one stacked row
    stands for all if a segment has one row. parts: runs of groups, each small enough to be gathered at once.
    """

    segments: int
    rows: int
    index: Tensor
    pages: Tensor
    hidden: Tensor
    parts: tuple[slice, ...]


def stacked_rows(rows: int, sharing: int) -> int:
    """Rows of the whole tiles that hold `rows` rows of the `sharing` query heads of one key head."""
    return -(-rows * sharing // TILE) * TILE


def _segments(step: Step, heads: int, window: int | None) -> Iterator[Segment]:
    starts = np.flatnonzero(np.diff(step.sequences, prepend=-1)).tolist()
    for start, stop in pairwise([*starts, len(step.sequences)]):
        affordable = WORK_SCORES // (heads * (int(step.positions[stop - 1]) + 1))
        most = min(SEGMENT_ROWS, max(TILE, affordable))
        for row in range(start, stop, most):
            rows = min(most, stop - row)
            oldest = 0 if window is None else max(0, int(step.positions[row]) - window + 1)
            first_group = oldest // KEYS
            groups = int(step.positions[row + rows - 1]) // KEYS + 1 - first_group
            yield Segment(row, rows, int(step.sequences[row]), first_group, groups)


def work_of(
    step: Step, cache: PagedCache, layer: CachedLayer, heads: int, window: int | None, device: torch.device
) -> list[Work]:
    """The work of one step, the same in every layer with these heads and this window.

    Segments come together if they have equally many rows and, within a factor of two, equally many groups: so
    less than half of the work is padding.
    """
    alike: dict[tuple[int, int], list[Segment]] = defaultdict(list)
    for segment in _segments(step, heads, window):
        alike[segment.rows, segment.groups.bit_length()].append(segment)
    works = []
    for (rows, _), segments in alike.items():
        segments.sort(key=lambda segment: segment.groups)
        kv_heads = layer.kv_heads
        scores = kv_heads * stacked_rows(rows, heads // kv_heads) * segments[-1].groups * KEYS
        most = max(1, WORK_SCORES // scores)
        works += [
            _work(step, cache, layer, segments[start : start + most], heads // kv_heads, window, device)
            for start in range(0, len(segments), most)
        ]
    return works


def _work(
    step: Step,
    cache: PagedCache,
    layer: CachedLayer,
    segments: list[Segment],
    sharing: int,
    window: int | None,
    device: torch.device,
) -> Work:
    block_size, rows, groups = cache.shape.block_size, segments[0].rows, segments[-1].groups
    index = np.array([segment.start for segment in segments])[:, None] + np.arange(rows)
    sequences = np.array([segment.sequence for segment in segments])
    group = np.array([segment.first_group for segment in segments]) + np.arange(groups)[:, None]

    blocks = KEYS // block_size
    columns = group[..., None] * blocks + np.arange(blocks)
    # Past the end of a table any block will do: its keys are hidden.
    columns = np.minimum(columns, step.block_tables.shape[1] - 1)
    pages = cache.pages(step.block_tables[sequences[:, None], columns], layer.kv_heads)

    stacked = 1 if rows == 1 else stacked_rows(rows, sharing)
    position = step.positions[index[:, np.minimum(np.arange(stacked) // sharing, rows - 1)]][..., None]
    keys = (group[..., None] * KEYS + np.arange(KEYS))[:, :, None]
    hidden = keys > position
    if window is not None:
        hidden |= keys <= position - window

    most = max(1, PART_VALUES // (len(segments) * layer.kv_heads * KEYS * layer.head_dim))
    return Work(
        segments=len(segments),
        rows=rows,
        index=torch.from_numpy(index.reshape(-1)).to(device),
        pages=torch.from_numpy(pages.reshape(groups, -1)).to(device),
        hidden=torch.from_numpy(hidden[:, :, None]).to(device),
        parts=tuple(slice(start, start + most) for start in range(0, groups, most)),
    )
