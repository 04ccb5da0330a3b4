"""Paged attention in a fixed order.

A step's rows are cut into segments: a run of rows of one sequence. Rows and query heads that share a key head are
stacked and cut into tiles of TILE rows; keys and values go in groups of KEYS, aligned to absolute positions. Every
matrix product has the shape of one tile and one group, so a row's bits don't depend on its neighbours (see linear.py).
Scores are kept, so the softmax has the exact maximum; groups are added in order of position, and a hidden key adds
exactly 0, wherever the groups of a segment begin and end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..arithmetic import exp32, tree_sum
from ..interface import Int32
from .cache import PagedCache
from .linear import products

TILE = 4
"""Rows of a tile: few, as a decode step fills only heads / kv_heads of them."""

KEYS = 128
"""Keys of a group."""

SEGMENT_ROWS = 64
WORK_VALUES = 1 << 22
"""Most float32 values (keys, values or scores) that a piece of work should hold at a time."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Where a step's rows stand, on the host: fields of `Batch`."""

    positions: Int32
    sequences: Int32
    block_tables: Int32


@dataclass(frozen=True, slots=True)
class Work:
    """`segments` of `rows` rows each, of similar length, attended in one go.

    index: int64 [segments * rows], rows of the step. pages: int64 [segments * kv_heads * pages], see PagedCache.
    hidden: bool [groups, segments, 1, stacked rows (1 for a single row), KEYS], keys that a row may not see.
    """

    segments: int
    rows: int
    groups: int
    index: Tensor
    pages: Tensor
    hidden: Tensor


@dataclass(frozen=True, slots=True)
class _Segment:
    start: int
    rows: int
    sequence: int
    first_group: int
    groups: int


def _segments(where: Rows, window: int | None) -> Iterator[_Segment]:
    """The runs of rows of one sequence, at most SEGMENT_ROWS each, and the groups of keys each one sees."""
    starts = np.flatnonzero(np.diff(where.sequences, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], len(where.sequences)], strict=True):
        for row in range(start, stop, SEGMENT_ROWS):
            rows = min(SEGMENT_ROWS, stop - row)
            oldest = 0 if window is None else max(0, int(where.positions[row]) - window + 1)
            first_group = oldest // KEYS
            groups = int(where.positions[row + rows - 1]) // KEYS + 1 - first_group
            yield _Segment(row, rows, int(where.sequences[row]), first_group, groups)


def plan(where: Rows, cache: PagedCache, heads: int, window: int | None, device: torch.device) -> list[Work]:
    """Work for one step, the same in every layer with this window.

    Segments are put together when they have equal row counts and their group counts lie within a factor of two, so
    padding costs less than the work itself.
    """
    shape = cache.shape
    alike = defaultdict(list)
    for segment in _segments(where, window):
        alike[segment.rows, segment.groups.bit_length()].append(segment)
    works = []
    for (rows, _), segments in alike.items():
        segments.sort(key=lambda segment: segment.groups)
        values = segments[-1].groups * KEYS * max(2 * shape.kv_heads * shape.head_dim, rows * heads)
        step = max(1, WORK_VALUES // values)
        for i in range(0, len(segments), step):
            works.append(_work(where, cache, segments[i : i + step], heads, window, device))
    return works


def _work(
    where: Rows, cache: PagedCache, segments: list[_Segment], heads: int, window: int | None, device: torch.device
) -> Work:
    rows, groups = segments[0].rows, max(segment.groups for segment in segments)
    index = np.array([segment.start for segment in segments])[:, None] + np.arange(rows)
    sequences = np.array([segment.sequence for segment in segments])
    first = np.array([segment.first_group for segment in segments])
    per_group = KEYS // cache.shape.block_size
    columns = first[:, None] * per_group + np.arange(groups * per_group)
    # Past the end of a table any block will do: its keys are hidden.
    blocks = where.block_tables[sequences[:, None], np.minimum(columns, where.block_tables.shape[1] - 1)]

    positions = where.positions[index]
    if rows > 1:
        stack = heads // cache.shape.kv_heads
        stacked = -(-rows * stack // TILE) * TILE
        positions = positions[:, np.minimum(np.arange(stacked) // stack, rows - 1)]
    keys = (first + np.arange(groups)[:, None])[..., None] * KEYS + np.arange(KEYS)
    at, key = torch.from_numpy(positions)[None, :, None, :, None], torch.from_numpy(keys)[:, :, None, None, :]
    hidden = key > at
    if window is not None:
        hidden |= key <= at - window
    return Work(
        segments=len(segments),
        rows=rows,
        groups=groups,
        index=torch.from_numpy(index.reshape(-1)).to(device),
        pages=torch.from_numpy(cache.pages(blocks).reshape(-1)).to(device),
        hidden=hidden.to(device),
    )


def attend(cache: PagedCache, layer: int, q: Tensor, works: list[Work], scale: float) -> Tensor:
    """Attention of q [rows, heads * head_dim] over the cached keys and values of a layer -> like q."""
    out = torch.empty_like(q)
    q = q * scale
    for work in works:
        out.index_copy_(0, work.index, _attend(cache, layer, q, work))
    return out


def _attend(cache: PagedCache, layer: int, q: Tensor, work: Work) -> Tensor:
    kv_heads, head_dim = cache.shape.kv_heads, cache.shape.head_dim
    n, stack = work.segments * kv_heads, q.shape[1] // (kv_heads * head_dim)
    used = work.rows * stack
    tiles = -(-used // TILE)

    queries = q.index_select(0, work.index).view(work.segments, work.rows, kv_heads, stack, head_dim)
    queries = pad(queries.transpose(1, 2).reshape(n, used, head_dim), (0, 0, 0, tiles * TILE - used))
    queries = queries.view(n, tiles, TILE, head_dim)
    keys, values = (part.view(n, work.groups, KEYS, head_dim) for part in cache.read(layer, work.pages))

    scores = q.new_empty(work.groups, n, tiles, TILE, KEYS)
    for group, score in enumerate(scores):
        products(queries, keys[:, group].mT, out=score)
    by_head = scores.view(work.groups, work.segments, kv_heads, tiles * TILE, KEYS)
    by_head.masked_fill_(work.hidden, -math.inf)
    weights = exp32(scores.sub_(scores.amax(0).amax(-1, keepdim=True)), torch.int32)
    total = weights[0].clone()
    for weight in weights[1:]:
        total += weight
    mixed = _mix(weights, values)
    if not mixed.abs().amax() < math.inf:
        mixed = _mix_shielded(weights, values, work.hidden)
    mixed = (mixed / tree_sum(total)).view(n, -1, head_dim)[:, :used]
    mixed = mixed.reshape(work.segments, kv_heads, work.rows, stack, head_dim).transpose(1, 2)
    return mixed.reshape(work.segments * work.rows, -1)


def _mix(weights: Tensor, values: Tensor) -> Tensor:
    """Weighted values: weights [groups, n, tiles, TILE, KEYS], values [n, groups, KEYS, head_dim], group by group."""
    mixed = weights.new_zeros(*weights.shape[1:-1], values.shape[-1])
    for group, weight in enumerate(weights):
        mixed += products(weight, values[:, group])
    return mixed


def _mix_shielded(weights: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
    """As _mix where values hold NaN or infinities, which a weight of 0 would let through to rows that can't see them.

    A row that does see one becomes NaN.
    """
    n, groups, keys, head_dim = values.shape
    broken = ~values.isfinite().all(-1)
    mixed = _mix(weights, values.masked_fill(broken[..., None], 0.0))
    segments = hidden.shape[1]
    by_group = broken.view(segments, -1, 1, groups, keys).permute(3, 0, 1, 2, 4)
    seen = (by_group & ~hidden).any(-1).any(0)  # [segments, kv_heads, stacked rows or 1]
    mixed.view(segments, n // segments, -1, head_dim).masked_fill_(seen[..., None], math.nan)
    return mixed
