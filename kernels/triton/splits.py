"""What comes of splits of keys, added up by their maxima, in order of position (arXiv 2205.14135)."""

from __future__ import annotations

import triton
import triton.language as tl

from .work import ITEM, TILE

_ITEM, _TILE = tl.constexpr(ITEM), tl.constexpr(TILE)


@triton.jit
def add_split(best, total, mixed, other_best, other_total, other_mixed):
    """Maximum, sum of weights and weighted values of two sets of keys together."""
    both = tl.maximum(best, other_best)
    base = tl.where(both == float("-inf"), 0.0, both)
    old, new = tl.exp(best - base), tl.exp(other_best - base)
    return both, total * old + other_total * new, mixed * old[:, None] + other_mixed * new[:, None]


@triton.jit
def finish(best, total, mixed, sink, SINKS: tl.constexpr):
    """Weighted values by the sum of weights; sink: a score more for each row, without a value."""
    if SINKS:
        both = tl.maximum(best, sink)
        share = tl.exp(best - both)
        mixed = mixed * share[:, None]
        total = total * share + tl.exp(sink - both)
    total = tl.where(total == 0, 1.0, total)  # of rows that are not there
    return tl.div_rn(mixed, tl.broadcast_to(total[:, None], mixed.shape))


@triton.jit(do_not_specialize=["place"])
def merge_splits(
    out, work, place, partial, marks, sinks,
    KV_HEADS: tl.constexpr, SHARING: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    SINKS: tl.constexpr,
):  # fmt: skip
    """Merges of work: the partial results of a tile's splits, added up in order."""
    merges = work + tl.load(work + place + 2)
    tasks = tl.load(work + place + 3) * KV_HEADS
    columns = tl.arange(0, WIDE)
    stacked = tl.arange(0, _TILE)
    for task in range(tl.program_id(0), tasks, tl.num_programs(0)):
        merge = merges + task // KV_HEADS * _ITEM
        head = task % KV_HEADS
        begin, count = tl.load(merge + 1), tl.load(merge + 2)
        own, pieces = tl.load(merge + 3), tl.load(merge + 4)
        used = stacked < count
        held = used[:, None] & (columns < DIM)[None, :]
        best = tl.full([_TILE], float("-inf"), tl.float32)
        total = tl.zeros([_TILE], tl.float32)
        mixed = tl.zeros([_TILE, WIDE], tl.float32)
        for piece in range(pieces):
            line = (own + piece * count + stacked).to(tl.int64) * KV_HEADS + head
            m = tl.load(partial + line[:, None] * DIM + columns[None, :], mask=held, other=0.0)
            b = tl.load(marks + 2 * line, mask=used, other=float("-inf"))
            t = tl.load(marks + 2 * line + 1, mask=used, other=0.0)
            best, total, mixed = add_split(best, total, mixed, b, t, m)
        rows = tl.load(merge) + (begin + stacked) // SHARING
        heads = head * SHARING + (begin + stacked) % SHARING
        sink = tl.load(sinks + heads, mask=used, other=0.0) if SINKS else best
        result = finish(best, total, mixed, sink, SINKS)
        line = rows.to(tl.int64) * (KV_HEADS * SHARING) + heads
        tl.store(out + line[:, None] * DIM + columns[None, :], result, mask=held)
