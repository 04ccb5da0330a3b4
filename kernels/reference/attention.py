"""Paged attention in a fixed order.

Rows and query heads that share a key head are stacked and cut into tiles of TILE rows; keys and values go in groups of
KEYS. Every matrix product has the shape of one tile and one group, so that a row's bits don't depend on its neighbours
(see linear.py). Scores are kept for the exact maximum; groups are added in order of position; and a hidden key is worth
exactly 0, so it doesn't matter at which group a segment's keys begin and end.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..arithmetic import exp32
from .cache import PagedCache
from .linear import products
from .plan import KEYS, TILE, Work, stacked_rows
from .sums import tree_sum


def attend(cache: PagedCache, layer: int, q: Tensor, works: list[Work], scale: float) -> Tensor:
    """Attention of q [rows, heads * head_dim] over a layer's cached keys and values -> like q."""
    out = torch.empty_like(q)
    q = q * scale
    for work in works:
        out.index_copy_(0, work.index, _attend(cache, layer, q.index_select(0, work.index), work))
    return out


def _attend(cache: PagedCache, layer: int, q: Tensor, work: Work) -> Tensor:
    """Attention of the rows of one piece of work, [segments * rows, heads * head_dim]."""
    kv_heads, head_dim = cache.shape.kv_heads, cache.shape.head_dim
    heads = q.shape[1] // head_dim
    sizes = (work.segments, work.rows, kv_heads, heads // kv_heads, head_dim)
    stacked, used = stacked_rows(work.rows, heads, kv_heads), work.rows * (heads // kv_heads)
    queries = q.view(sizes).transpose(1, 2).reshape(-1, used, head_dim)
    queries = pad(queries, (0, 0, 0, stacked - used)).unflatten(1, (-1, TILE))

    weights, total = _softmax(_scores(cache, layer, queries, work), work)
    mixed = _mix(cache, layer, weights, work)
    if not mixed.abs().amax() < math.inf:
        mixed = _mix(cache, layer, weights, work, shielded=True)
    mixed = (mixed / total).flatten(1, 2)[:, :used]
    return mixed.reshape(sizes[0], kv_heads, work.rows, -1, head_dim).transpose(1, 2).reshape(q.shape)


def _scores(cache: PagedCache, layer: int, queries: Tensor, work: Work) -> Tensor:
    """queries [n, tiles, TILE, head_dim], n = segments * kv_heads -> scores [groups, n, tiles, TILE, KEYS]."""
    scores = queries.new_empty(len(work.pages), *queries.shape[:-1], KEYS)
    for part in work.parts:
        keys = cache.read_keys(layer, work.pages[part]).view(-1, KEYS, queries.shape[-1])
        repeated = queries.expand(len(keys) // len(queries), *queries.shape).flatten(0, 1)
        products(repeated, keys.mT, out=scores[part].flatten(0, 1))
    return scores


def _softmax(scores: Tensor, work: Work) -> tuple[Tensor, Tensor]:
    """exp(score - best score) in place of the scores, 0 for hidden keys, and its sum over a row's keys [..., 1]."""
    by_head = scores.view(*work.hidden.shape[:2], -1, scores.shape[2] * TILE, KEYS)
    by_head.masked_fill_(work.hidden, -math.inf)
    weights = exp32(scores.sub_(scores.amax(0).amax(-1, keepdim=True)), torch.int32)
    lanes = weights[0].clone()
    for weight in weights[1:]:
        lanes += weight
    return weights, tree_sum(lanes)


def _mix(cache: PagedCache, layer: int, weights: Tensor, work: Work, *, shielded: bool = False) -> Tensor:
    """Weights [groups, n, tiles, TILE, KEYS] times values, group by group -> [n, tiles, TILE, head_dim].

    shielded: NaN and infinities among the values, which even a weight of 0 lets through, reach only the rows that see
    them: those become NaN.
    """
    mixed = weights.new_zeros(*weights.shape[1:-1], cache.shape.head_dim)
    for part in work.parts:
        values = cache.read_values(layer, work.pages[part]).view(-1, KEYS, cache.shape.head_dim)
        if shielded:
            broken = ~values.isfinite().all(-1)
            values = values.masked_fill(broken[..., None], 0.0)
            hidden = work.hidden[part]
            seen = (broken.view(*hidden.shape[:2], -1, 1, KEYS) & ~hidden).any(-1).any(0)
            mixed.view(*seen.shape[:2], -1, cache.shape.head_dim).masked_fill_(seen[..., None], math.nan)
        for group in products(weights[part].flatten(0, 1), values).unflatten(0, (-1, len(mixed))):
            mixed += group
    return mixed
