"""The sampling rules in numpy: the specification, which every other sampler must equal token by token.

For each row, in this order, in float32 unless said otherwise:

1. Mask: a token that it does not allow counts as -inf before everything else, whatever its logit was.
2. Penalties, for each token on the row's seen list. Repetition r makes x > 0 into x / r and any other x into
   x * r, once however often the token was seen, in the prompt too (CTRL, arXiv 1909.05858); then x - presence
   if the reply holds it; then x - frequency * count in the reply.
3. Bias: x + value; -inf forbids the token.
4. A row with NaN or +inf, or with nothing but -inf, is bad: its token is -1.
5. Temperature: z = (x - best x) / temperature. Below 1e-5, where differences between float32 logits mean
   nothing, the row is greedy: the best x wins, of equals the lowest id. Also top_k 1, top_p 0, min_p 1.
6. Tokens are ordered by x downwards, equal ones by id upwards; the first that a rule rejects ends the list.
   With w = exp32(z) and m = floor(w 2^40), an integer, so that sums are exact in any order: top_k keeps the
   first k; top_p keeps a token while the sum of m before it is less than top_p * total, a product in float64,
   with total the sum of m over what top_k left; min_p keeps a token with w >= min_p.
7. Of the tokens left, the largest z + noise(seed, position, token) wins (noise.py), of equals the lowest id.

top_k 0 or >= vocabulary, top_p 1 and min_p 0 turn a rule off.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .arithmetic import exp32
from .interface import Float32, Int32
from .noise import gumbel, hash32, row_keys, token_words
from .step import Int64, Step

Rows = NDArray[np.intp]
Bool = NDArray[np.bool_]

_GREEDY_BELOW = np.float32(1e-5)
_FORBIDDEN = np.float32(-np.inf)
_NOISE_SPAN = np.float32(26)
"""More than the largest noise is above the smallest."""
_AT_ONCE = 1 << 16
"""Scores that are worked on at a time: they stay in the cache."""


def sample(logits: Float32, step: Step) -> Int32:
    """The next token of each row of logits [samples, vocabulary], which are not changed; -1 for a bad row."""
    with np.errstate(all="ignore"):  # broken logits are reported as -1
        x = _adjusted(logits, step)
        first = x.argmax(axis=1)
        best = x[np.arange(len(x)), first]
        tokens = np.where(np.isfinite(best), first, -1).astype(np.int32)
        drawn = (step.temperature >= _GREEDY_BELOW) & (_limits(step, x.shape[1]) > 1) & np.isfinite(best)
        for rows in _pieces(np.flatnonzero(drawn), x.shape[1]):
            z, kept = _kept(x, best, step, rows)
            row, ids = np.nonzero(kept & (z > -_NOISE_SPAN))  # what is further below can't beat the best
            keys = row_keys(step.seeds[rows], step.draw_positions[rows])
            noisy = np.full(z.shape, _FORBIDDEN)
            noisy[row, ids] = z[row, ids] + gumbel(hash32(keys[row], token_words(x.shape[1])[ids]))
            tokens[rows] = noisy.argmax(axis=1)
    return tokens


def process(logits: Float32, step: Step) -> Float32:
    """What `sample` draws from: logits [samples, vocabulary] after mask, penalties and bias, by temperature.

    -inf where a token was removed. A greedy temperature counts as 1. A bad row loses no tokens to rule 6.
    """
    with np.errstate(all="ignore"):
        x = _adjusted(logits, step)
        best = x.max(axis=1)
        result = x / _temperatures(step)[:, None]
        for rows in _pieces(np.flatnonzero(np.isfinite(best)), x.shape[1]):
            _, kept = _kept(x, best, step, rows)
            result[rows] = np.where(kept, result[rows], _FORBIDDEN)
    return result


def _adjusted(logits: Float32, step: Step) -> Float32:
    """The x of all tokens, after mask, penalties and bias; the logits themselves where no row has any."""
    if not (step.counts.mask_words or step.seen_offsets[-1] or step.bias_offsets[-1]):
        return np.asarray(logits, np.float32)
    x = np.array(logits, np.float32)
    if step.counts.mask_words:
        bits = np.unpackbits(step.mask.astype("<u4").view(np.uint8), axis=1, bitorder="little")
        x[bits[:, : x.shape[1]] == 0] = _FORBIDDEN
    every = np.arange(len(x))
    row, count = np.repeat(every, np.diff(step.seen_offsets)), step.seen_offsets[-1]
    ids, counts = step.seen_ids[:count], step.seen_counts[:count]
    seen = x[row, ids]
    seen = np.where(seen > 0, seen / step.repetition[row], seen * step.repetition[row])
    seen -= np.where(counts > 0, step.presence[row], np.float32(0))
    x[row, ids] = seen - step.frequency[row] * counts.astype(np.float32)
    row, count = np.repeat(every, np.diff(step.bias_offsets)), step.bias_offsets[-1]
    x[row, step.bias_ids[:count]] += step.bias_values[:count]
    return x


def _temperatures(step: Step) -> Float32:
    return np.where(step.temperature < _GREEDY_BELOW, np.float32(1), step.temperature)


def _limits(step: Step, vocabulary: int) -> Int64:
    """Tokens that top_k leaves at most; one where top_p or min_p leaves the best alone."""
    limits = np.where(step.top_k > 0, np.minimum(step.top_k, vocabulary), vocabulary)
    return np.where((step.top_p <= 0) | (step.min_p >= 1), 1, limits).astype(np.int64)


def _pieces(rows: Rows, vocabulary: int) -> Iterator[Rows]:
    size = max(1, _AT_ONCE // vocabulary)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _kept(x: Float32, best: Float32, step: Step, rows: Rows) -> tuple[Float32, Bool]:
    """The z of the tokens of some rows, and which of them top_k, top_p and min_p leave."""
    x = x[rows]
    z = (x - best[rows, None]) / _temperatures(step)[rows, None]
    limit, top_p, min_p = _limits(step, x.shape[1])[rows], step.top_p[rows], step.min_p[rows]
    if np.all((limit == x.shape[1]) & (top_p >= 1) & (min_p <= 0)):
        return z, x > _FORBIDDEN
    order = _order(x)[:, : limit.max()]
    w = exp32(np.take_along_axis(z, order, axis=1))
    fits = np.arange(order.shape[1]) < limit[:, None]
    m = np.where(fits, (w * np.float32(2**40)).astype(np.int64), 0)
    share = np.where((top_p > 0) & (top_p < 1), top_p * m.sum(axis=1).astype(np.float64), np.inf)
    fits &= (w >= min_p[:, None]) & (np.cumsum(m, axis=1) - m < share[:, None])
    kept = np.zeros(x.shape, bool)
    np.put_along_axis(kept, order, np.logical_and.accumulate(fits, axis=1), axis=1)
    return z, kept & (x > _FORBIDDEN)


def _order(x: Float32) -> Int64:
    """The ids of each row by x downwards, equal ones by id upwards."""
    bits = (x + np.float32(0)).view(np.int32)  # adding 0 turns -0 into +0: they are equal
    upwards = (bits ^ (bits >> 31 & 0x7FFFFFFF)).astype(np.int64)  # integers that compare as the floats do
    order: Int64 = np.sort(np.arange(x.shape[1]) - upwards * 2**32, axis=1) & 0xFFFFFFFF
    return order
