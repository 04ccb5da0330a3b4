"""Paged attention (arXiv 2205.14135, 2309.06180): tiles of stacked query rows over splits of keys.

A program takes the items of `work.py` by turns. Within a split it goes over the keys with a running maximum;
splits are then added up by their maxima, in order of position, here or by a merge. A key that a row does not
see is worth exactly 0 and changes no bit, so neither where splits and tiles begin nor what else is in a tile
matters to a row. Scores and sums are float32; products take keys, values and weights in the format of the
cache, for int8 in float16.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from ..cache_format import CacheShape
from ..reference import attention as reference
from ..reference.work import work_of
from ..step import Step
from .arithmetic import EXACT, tanh32
from .batch import TABLE_WIDTH, TABLES, Batch, Kind
from .cache import Cache
from .kernel import Draw, Function, Kernel, Trial
from .splits import add_split, finish, merge_splits
from .work import ITEM, SPLIT, TILE

_NO_WINDOW = 1 << 30

_TABLES, _WIDTH, _ITEM, _SPLIT = map(tl.constexpr, (TABLES, TABLE_WIDTH, ITEM, SPLIT))
_TILE = tl.constexpr(TILE)


@triton.jit
def _one_split(
    q, positions, first, end, table, k, v, k_scales, v_scales, head, scale, window, cap,
    KV_HEADS: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
    SCALED: tl.constexpr, CAPPED: tl.constexpr, DOT: tl.constexpr, KEYS: tl.constexpr,
    SHIELDED: tl.constexpr,
):  # fmt: skip
    """Maximum, sum and mix of the keys from `first` to before `end`.

    SHIELDED: values that are not finite reach the rows that see them, which become NaN, and no others.
    """
    best = tl.full([_TILE], float("-inf"), tl.float32)
    total = tl.zeros([_TILE], tl.float32)
    mixed = tl.zeros([_TILE, WIDE], tl.float32)
    columns = tl.arange(0, WIDE)
    for start in range(first // KEYS * KEYS, end, KEYS):
        keys = start + tl.arange(0, KEYS)
        there = keys < end
        blocks = tl.load(table + keys // BLOCK, mask=there, other=0)
        lines = (blocks.to(tl.int64) * KV_HEADS + head) * BLOCK + keys % BLOCK
        held = there[:, None] & (columns < DIM)[None, :]
        places = lines[:, None] * DIM + columns[None, :]
        key = tl.load(k + places, mask=held, other=0).to(DOT)
        scores = tl.dot(q, tl.trans(key), input_precision="tf32x3") * scale
        if SCALED:
            scores = scores * tl.load(k_scales + lines, mask=there, other=0.0)[None, :]
        if CAPPED:
            scores = tanh32(tl.div_rn(scores, tl.full(scores.shape, cap, tl.float32))) * cap
        seen = (keys[None, :] <= positions[:, None]) & (keys[None, :] > positions[:, None] - window)
        seen = seen & there[None, :]
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - base[:, None])
        kept = tl.exp(best - base)
        total = total * kept + tl.sum(weights, 1)
        value = tl.load(v + places, mask=held, other=0)
        if SCALED:
            scales = tl.load(v_scales + lines, mask=there, other=0.0)
            value = value.to(tl.float32) * scales[:, None]
        if SHIELDED:
            broken = ~(tl.abs(value.to(tl.float32)) < float("inf"))
            value = tl.where(broken, 0.0, value.to(tl.float32))
            hit = tl.max(broken.to(tl.int32), 1)
            spoilt = tl.max(tl.where(seen, hit[None, :], 0), 1)
            total = tl.where(spoilt > 0, float("nan"), total)
        mixed = mixed * kept[:, None]
        mixed = tl.dot(weights.to(DOT), value.to(DOT), mixed, input_precision="tf32x3")
        best = higher
    return best, total, mixed


@triton.jit(do_not_specialize=["place", "window"])
def _attend(
    q, out, positions, memory, work, place, k, v, k_scales, v_scales, partial, marks, sinks,
    q_stride, scale, window, cap,
    KV_HEADS: tl.constexpr, SHARING: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr,
    WIDE: tl.constexpr, SCALED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr, DOT: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Items of work: the attention of a tile's rows over all its keys, or over a split of them."""
    items = work + tl.load(work + place)
    tasks = tl.load(work + place + 1) * KV_HEADS
    width = tl.load(memory + _WIDTH)
    tables = memory + tl.load(memory + _TABLES)
    columns = tl.arange(0, WIDE)
    stacked = tl.arange(0, _TILE)
    for task in range(tl.program_id(0), tasks, tl.num_programs(0)):
        item = items + task // KV_HEADS * _ITEM
        head = task % KV_HEADS
        begin, count = tl.load(item + 1), tl.load(item + 2)
        first, end, own = tl.load(item + 4), tl.load(item + 5), tl.load(item + 6)
        table = tables + tl.load(item + 3).to(tl.int64) * width
        used = stacked < count
        rows = tl.load(item) + (begin + stacked) // SHARING
        heads = head * SHARING + (begin + stacked) % SHARING
        held = used[:, None] & (columns < DIM)[None, :]
        query = tl.load(
            q + rows.to(tl.int64)[:, None] * q_stride + heads[:, None] * DIM + columns[None, :],
            mask=held, other=0.0,
        ).to(DOT)  # fmt: skip
        position = tl.load(positions + rows, mask=used, other=-1)
        best = tl.full([_TILE], float("-inf"), tl.float32)
        total = tl.zeros([_TILE], tl.float32)
        mixed = tl.zeros([_TILE, WIDE], tl.float32)
        for split in range(first // _SPLIT * _SPLIT, end, _SPLIT):
            begins, ends = tl.maximum(split, first), tl.minimum(split + _SPLIT, end)
            b, t, m = _one_split(
                query, position, begins, ends, table, k, v, k_scales, v_scales, head, scale, window, cap,
                KV_HEADS, BLOCK, DIM, WIDE, SCALED, CAPPED, DOT, KEYS, False,
            )  # fmt: skip
            if tl.max((~(tl.abs(m) < float("inf"))).to(tl.int32)) > 0:
                b, t, m = _one_split(
                    query, position, begins, ends, table, k, v, k_scales, v_scales, head, scale, window, cap,
                    KV_HEADS, BLOCK, DIM, WIDE, SCALED, CAPPED, DOT, KEYS, True,
                )  # fmt: skip
            best, total, mixed = add_split(best, total, mixed, b, t, m)
        if own < 0:
            sink = tl.load(sinks + heads, mask=used, other=0.0) if SINKS else best
            result = finish(best, total, mixed, sink, SINKS)
            line = rows.to(tl.int64) * (KV_HEADS * SHARING) + heads
            tl.store(out + line[:, None] * DIM + columns[None, :], result, mask=held)
        else:
            line = (own + stacked).to(tl.int64) * KV_HEADS + head
            tl.store(partial + line[:, None] * DIM + columns[None, :], mixed, mask=held)
            tl.store(marks + 2 * line, best, mask=used)
            tl.store(marks + 2 * line + 1, total, mask=used)


def _keys_at_once(wide: int, cache: Tensor) -> int:
    """Keys of a product: fewer where they are long, as they lie in a processor's own memory twice."""
    nbytes = wide * max(cache.itemsize, 2)
    return 64 if nbytes <= 256 else 32 if nbytes <= 512 else 16


def _product_type(cache: Tensor) -> Any:
    """What products are of: the cache's own type, where that is one of floats."""
    if cache.dtype is torch.float32 or (cache.dtype is torch.bfloat16 and not cache.is_cuda):
        return tl.float32  # interpreted kernels have no bfloat16
    return tl.bfloat16 if cache.dtype is torch.bfloat16 else tl.float16


def attend(
    q: Tensor,
    cache: Cache,
    layer: int,
    batch: Batch,
    scale: float,
    window: int | None = None,
    cap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """`Operations.paged_attention`: q [rows, heads * head_dim], whose columns are contiguous -> the same."""
    kv_heads, dim = cache.shape.layers[layer]
    sharing = q.shape[1] // (kv_heads * dim)
    room = len(cache.workspace) // (kv_heads * (dim + 2))
    work, place = batch.work(Kind(sharing, window, room))
    partial = cache.workspace
    marks = partial[room * kv_heads * dim :]
    k, v = cache.values(layer)
    scales = cache.scales(layer)
    out = q.new_empty(q.shape)
    shares = q if sinks is None else sinks
    positions = batch.array("positions")
    wide = max(16, triton.next_power_of_2(dim))
    shape = {"KV_HEADS": kv_heads, "SHARING": sharing, "DIM": dim, "WIDE": wide, "SINKS": sinks is not None}
    warps = {"num_warps": 4 if wide < 128 else 8, "num_stages": 2}
    grid = (cache.programs,)
    _attend[grid](
        q, out, positions, batch.memory, work, place, k, v, *(scales or (k, v)), partial, marks, shares,
        q.stride(0), scale, _NO_WINDOW if window is None else min(window, _NO_WINDOW), cap or 1.0,
        BLOCK=cache.shape.block_size, SCALED=scales is not None, CAPPED=cap is not None,
        DOT=_product_type(k), KEYS=_keys_at_once(wide, k), **shape, **warps, **EXACT,
    )  # fmt: skip
    merge_splits[grid](out, work, place, partial, marks, shares, **shape, **warps, **EXACT)
    return out


def _plain(
    q: Tensor,
    cache: Cache,
    layer: int,
    batch: Batch,
    scale: float,
    window: int | None = None,
    cap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    own = cache.shape.layers[layer]
    works = work_of(batch.step, cache, own, q.shape[1] // own.head_dim, window, q.device)
    return reference.attend(cache, layer, q.contiguous(), works, scale, cap, sinks)


def _trials(draw: Draw) -> Iterator[Trial]:
    """A prompt, a draft and replies of several lengths, in blocks that lie anywhere."""
    for format, heads, kv_heads, dim, block_size, window, cap, sinks in (
        ("float16", 4, 1, 64, 16, None, None, False),
        ("int8", 6, 2, 80, 32, 100, None, True),
        ("bfloat16", 8, 2, 64, 32, None, None, False),
        ("float32", 3, 3, 128, 16, None, 4.0, False),
    ):
        runs = ((70, 0), (3, 520), (1, 1100), (1, 0))  # rows, first position
        blocks = [-(-(rows + first) // block_size) for rows, first in runs]
        shape = CacheShape.alike(1, sum(blocks) + 3, block_size, kv_heads, dim, format)
        cache = Cache(shape, draw.device)
        lines = cache.lines(torch.arange(shape.blocks * block_size, device=draw.device), kv_heads)
        k, v = (draw.normal(shape.blocks * block_size, kv_heads * dim) for _ in range(2))
        cache.write(0, k, v, lines)
        order = draw.generator.permutation(shape.blocks)
        tables = np.zeros((len(runs), max(blocks)), np.int32)
        for line, (count, end) in enumerate(zip(blocks, np.cumsum(blocks), strict=True)):
            tables[line, :count] = order[end - count : end]
        step = Step.of(
            positions=np.concatenate([first + np.arange(rows) for rows, first in runs]),
            sequences=np.repeat(np.arange(len(runs)), [rows for rows, _ in runs]),
            block_tables=tables,
        )
        q = draw.normal(step.counts.rows, heads * dim)
        if format == "bfloat16":  # as the kernel rounds them: else that would be what is compared
            q = q.bfloat16().float()
        shares = draw.normal(heads) if sinks else None

        def trial(
            f: Function,
            step: Step = step,
            arguments: tuple[object, ...] = (dim**-0.5, window, cap, shares),
            q: Tensor = q,
            cache: Cache = cache,
        ) -> list[Tensor]:
            return [f(q, cache, 0, Batch.of(step, q.device), *arguments)]

        yield trial


KERNEL = Kernel("attention", attend, _plain, _trials, tolerance=2e-3)
