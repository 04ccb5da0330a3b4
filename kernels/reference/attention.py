"""Paged attention in a fixed order.

Rows and query heads that share a key head are stacked and cut into tiles; keys and values go in groups. Every
matrix product has the shape of one tile and one group, so a row's bits don't depend on its neighbours (see
linear.py). All scores are kept for the exact maximum; groups are added in order of position; and a hidden key
is worth exactly 0, so it doesn't matter at which group the keys of a segment begin and end.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..arithmetic import tanh32
from .cache import PagedCache
from .linear import products
from .numerics import exp, exp_, tree_sum
from .work import KEYS, TILE, Work, stacked_rows


def attend(
    cache: PagedCache,
    layer: int,
    q: Tensor,
    works: list[Work],
    scale: float,
    cap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of q [rows, heads * head_dim] over a layer's cached keys and values -> like q.

    cap: of the scores, sinks: [heads], see `Operations.paged_attention`.
    """
    out = torch.empty_like(q)
    q = q * scale
    for work in works:
        out.index_copy_(0, work.index, _attend(cache, layer, q.index_select(0, work.index), work, cap, sinks))
    return out


def _attend(
    cache: PagedCache, layer: int, q: Tensor, work: Work, cap: float | None, sinks: Tensor | None
) -> Tensor:
    """Attention of the rows of one piece of work, [segments * rows, heads * head_dim]."""
    kv_heads, head_dim = cache.shape.layers[layer]
    sharing = q.shape[1] // (kv_heads * head_dim)
    n, used, stacked = work.segments * kv_heads, work.rows * sharing, stacked_rows(work.rows, sharing)
    queries = q.view(work.segments, work.rows, kv_heads, sharing, head_dim).transpose(1, 2)
    queries = pad(queries.reshape(n, used, head_dim), (0, 0, 0, stacked - used)).view(n, -1, TILE, head_dim)

    weights = _scores(cache, layer, queries, work)
    if cap is not None:
        for group in weights:
            group.copy_(tanh32(group / cap, exp) * cap)
    if sinks is not None:  # as the queries are stacked
        repeated = sinks.view(kv_heads, 1, sharing).expand(-1, work.rows, -1).reshape(kv_heads, used)
        sinks = pad(repeated, (0, stacked - used)).repeat(work.segments, 1).view(n, -1, TILE, 1)
    total = _softmax_(weights, work.hidden, sinks)
    mixed = _mix(cache, layer, weights, work)
    if not mixed.abs().amax() < math.inf:
        mixed = _mix(cache, layer, weights, work, shielded=True)
    mixed = (mixed / total).view(n, stacked, head_dim)[:, :used]
    return mixed.reshape(work.segments, kv_heads, work.rows, -1).transpose(1, 2).reshape(q.shape)


def _scores(cache: PagedCache, layer: int, queries: Tensor, work: Work) -> Tensor:
    """Scores [groups, n, tiles, TILE, KEYS] of queries [n = segments * kv_heads, tiles, TILE, head_dim]."""
    scores = queries.new_empty(len(work.pages), *queries.shape[:-1], KEYS)
    for part in work.parts:
        keys = cache.read_keys(layer, work.pages[part]).view(-1, KEYS, queries.shape[-1])
        repeated = queries.expand(len(keys) // len(queries), *queries.shape).flatten(0, 1)
        products(repeated, keys.mT, out=scores[part].flatten(0, 1))
    return scores


def _softmax_(scores: Tensor, hidden: Tensor, sinks: Tensor | None) -> Tensor:
    """Turn scores into weights exp(score - best score), 0 if hidden; returns their sum [..., TILE, 1].

    sinks: a score more for each row, [..., TILE, 1], which has no weight of its own but is in the sum.
    """
    by_head = scores.view(*hidden.shape[:2], -1, scores.shape[2] * TILE, KEYS)
    by_head.masked_fill_(hidden, -math.inf)
    best = scores.amax(0).amax(-1, keepdim=True)
    best = best if sinks is None else torch.maximum(best, sinks)
    scores -= best
    lanes = torch.zeros_like(scores[0])
    for weights in exp_(scores):
        lanes += weights
    total = tree_sum(lanes)
    return total if sinks is None else total + exp(sinks - best)


def _mix(cache: PagedCache, layer: int, weights: Tensor, work: Work, *, shielded: bool = False) -> Tensor:
    """Weights [groups, n, tiles, TILE, KEYS] times values, group by group -> [n, tiles, TILE, head_dim].

    shielded: NaN and infinities among the values, which even a weight of 0 lets through, reach only the rows
    that see them: those become NaN.
    """
    n, head_dim = weights.shape[1], cache.shape.layers[layer].head_dim
    mixed = weights.new_zeros(*weights.shape[1:-1], head_dim)
    for part in work.parts:
        values = cache.read_values(layer, work.pages[part]).view(-1, KEYS, head_dim)
        if shielded:
            broken = ~values.isfinite().all(-1)
            values = values.masked_fill(broken[..., None], 0.0)
            hidden = work.hidden[part]
            seen = (broken.view(*hidden.shape[:2], -1, 1, KEYS) & ~hidden).any(-1).any(0)
            mixed.view(work.segments, n // work.segments, -1, head_dim).masked_fill_(
                seen[..., None], math.nan
            )
        groups = products(weights[part].flatten(0, 1), values)
        for group in groups.view(-1, *mixed.shape):
            mixed += group
    return mixed
