"""Which experts the rows of a step choose, decided on the device: weights, and each one's rows in tiles."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..interface import Routing
from .arithmetic import EXACT, exp32
from .product import ROW_TILES

PAIRS_AT_ONCE = 1024
"""Choices of rows that a program looks at together."""


@triton.jit
def _route(
    logits, factors, preference, chosen, weights, experts,
    USED: tl.constexpr, ALL: tl.constexpr, SIGMOID: tl.constexpr, FACTORS: tl.constexpr,
    PREFERENCE: tl.constexpr, EXPERTS: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """One row: its experts from the first choice on, the first of equal ones first."""
    row = tl.program_id(0)
    e = tl.arange(0, EXPERTS)
    left = e < experts
    logit = tl.load(logits + row * experts + e, mask=left, other=float("-inf"))
    one = tl.full((EXPERTS,), 1.0, tl.float32)
    if SIGMOID:
        score = tl.div_rn(one, one + exp32(-logit))
    elif PREFERENCE:
        score = tl.where(left, exp32(logit - tl.max(logit, axis=0)), 0.0)
        score = tl.div_rn(score, one * tl.sum(score, axis=0))
    else:
        score = logit
    key = score
    if PREFERENCE:
        key = score + tl.load(preference + e, mask=left, other=0.0)
    key = tl.where(key == key, key, float("inf"))
    place = tl.arange(0, PLACES)
    own = tl.zeros((PLACES,), tl.float32)
    ids = tl.zeros((PLACES,), tl.int32)
    for i in tl.static_range(USED):
        best = tl.max(tl.where(left, key, float("-inf")), axis=0)
        expert = tl.min(tl.where(left & (key == best), e, EXPERTS), axis=0)
        value = tl.sum(tl.where(e == expert, score, 0.0), axis=0)
        if i == 0:
            top = value
            total = tl.zeros((), tl.float32)
        weight = value if SIGMOID or PREFERENCE else exp32(value - top)
        total = total + weight
        ids = tl.where(place == i, expert, ids)
        own = tl.where(place == i, weight, own)
        left = left & (e != expert)
    if ALL:
        if SIGMOID or PREFERENCE:
            total = total * 0.0 + 1.0
        else:
            total = tl.sum(tl.where(e < experts, exp32(logit - top), 0.0), axis=0)
    own = tl.div_rn(own, tl.zeros((PLACES,), tl.float32) + total)
    at = row * USED + place
    if FACTORS:
        own = own * tl.load(factors + ids, mask=place < USED, other=0.0)
    tl.store(chosen + at, ids, mask=place < USED)
    tl.store(weights + at, own, mask=place < USED)


@triton.jit
def _count(chosen, counts, pairs, AT_ONCE: tl.constexpr):
    """Rows that chose one expert."""
    expert = tl.program_id(0)
    count = tl.zeros((AT_ONCE,), tl.int32)
    for begin in range(0, pairs, AT_ONCE):
        i = begin + tl.arange(0, AT_ONCE)
        count += (tl.load(chosen + i, mask=i < pairs, other=-1) == expert).to(tl.int32)
    tl.store(counts + expert, tl.sum(count, axis=0))


@triton.jit
def _place(
    chosen, counts, nbytes, order, tiles, read, pairs, experts,
    TILE: tl.constexpr, EXPERTS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The tiles of one expert: behind those of the experts before it."""
    expert = tl.program_id(0)
    e = tl.arange(0, EXPERTS)
    count = tl.load(counts + e, mask=e < experts, other=0)
    whole = (count + TILE - 1) // TILE
    first = tl.sum(tl.where(e < expert, whole, 0), axis=0)
    own = tl.sum(tl.where(e == expert, whole, 0), axis=0)
    for begin in range(0, own, AT_ONCE):
        i = begin + tl.arange(0, AT_ONCE)
        tl.store(tiles + first + i, tl.zeros((AT_ONCE,), tl.int32) + expert, mask=i < own)
    seen = first * TILE
    for begin in range(0, pairs, AT_ONCE):
        i = begin + tl.arange(0, AT_ONCE)
        mine = (tl.load(chosen + i, mask=i < pairs, other=-1) == expert).to(tl.int32)
        rank = seen + tl.cumsum(mine, axis=0) - 1
        tl.store(order + rank, i, mask=mine == 1)
        seen += tl.sum(mine, axis=0)
    if expert == 0:
        size = tl.load(nbytes + e, mask=e < experts, other=0)
        tl.store(read, tl.sum(tl.where(count > 0, size, 0), axis=0))


class Routed(NamedTuple):
    """Choices of rows: pair i is choice i % used of row i // used.

    weights: float32 [rows, used]. order: int32, pairs by expert, each one's filled up with -1 to whole tiles
    of `tile`. tiles: int32, whose a tile is, -1 for none. nbytes: int64 [1], of all that were chosen.
    """

    weights: Tensor
    order: Tensor
    tiles: Tensor
    tile: int
    nbytes: Tensor


def route(
    logits: Tensor, factors: Tensor | None, preference: Tensor | None, routing: Routing, nbytes: Tensor
) -> Routed:
    """Route rows by logits [rows, experts]. factors: see `Experts.scales`. nbytes: int64 [experts]."""
    rows, experts = logits.shape
    pairs, wide, device = rows * routing.used, triton.next_power_of_2(experts), logits.device
    chosen = torch.empty(rows, routing.used, dtype=torch.int32, device=device)
    weights = torch.empty(rows, routing.used, device=device)
    _route[(rows,)](
        logits.contiguous(), weights if factors is None else factors,
        weights if preference is None else preference, chosen, weights, experts,
        USED=routing.used, ALL=routing.weights == "all", SIGMOID=routing.scores == "sigmoid",
        FACTORS=factors is not None, PREFERENCE=preference is not None, EXPERTS=wide,
        PLACES=triton.next_power_of_2(routing.used), **EXACT,
    )  # fmt: skip
    tile = next((size for size in ROW_TILES if pairs <= size * experts), ROW_TILES[-1])
    count = min(pairs, experts + pairs // tile)
    order = torch.full((count * tile,), -1, dtype=torch.int32, device=device)
    tiles = torch.full((count,), -1, dtype=torch.int32, device=device)
    counts = torch.empty(experts, dtype=torch.int32, device=device)
    read = torch.empty(1, dtype=torch.int64, device=device)
    _count[(experts,)](chosen, counts, pairs, AT_ONCE=PAIRS_AT_ONCE, **EXACT)
    _place[(experts,)](
        chosen, counts, nbytes, order, tiles, read, pairs, experts,
        TILE=tile, EXPERTS=wide, AT_ONCE=PAIRS_AT_ONCE, **EXACT,
    )  # fmt: skip
    return Routed(weights, order, tiles, tile, read)
