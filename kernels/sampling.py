"""The sampling rules in numpy: the specification, and the twin every other sampler must equal token by token.

For each row, in this order, in float32 unless said otherwise:

1. Penalties, for each token on the row's seen list. Repetition r makes x > 0 into x / r and any other x into
   x * r, once however often the token was seen, in the prompt too (CTRL, arXiv 1909.05858); then x - presence
   if the reply holds it; then x - frequency * count in the reply.
2. Bias: x + value; -inf forbids the token.
3. A row with NaN or +inf, or with nothing but -inf, is bad: its token is -1.
4. Temperature: z = (x - best x) / temperature. Below 1e-5, where differences between float32 logits mean
   nothing, the row is greedy: the best x wins, of equals the lowest id. Also top_k 1, top_p 0, min_p 1.
5. Tokens are ordered by x downwards, equal ones by id upwards; the first that a rule rejects ends the list.
   With w = exp32(z) and m = floor(w 2^40), an integer, so that sums are exact in any order: top_k keeps the
   first k; top_p keeps a token while the sum of m before it is less than top_p * total, a product in float64,
   with total the sum of m over what top_k left; min_p keeps a token with w >= min_p.
6. Of the tokens left, the largest z + noise(seed, position, token) wins (noise.py), of equals the lowest id.

top_k 0 or >= vocabulary, top_p 1 and min_p 0 turn a rule off. The code looks at few tokens, decides the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .arithmetic import exp32
from .interface import Float32, Int32, SamplingBatch
from .noise import UInt32, gumbel, hash32, hash_bound, lucky_tokens, row_keys, token_words
from .ranking import NO_TOKEN, Int64, best_tokens, key_ids, key_scores, rank_keys

Rows = NDArray[np.intp]
Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]

_GREEDY_BELOW = np.float32(1e-5)
_MASS_UNIT = np.float32(2**40)
_TIERS = (64, 1024)
_ESTIMATE_ERROR = 1e-5
"""Of `_estimated_mass`, relative: a product for a quotient, libm's exp and a float32 sum stay below it."""


def sample(logits: Float32, batch: SamplingBatch) -> Int32:
    """The next token of each row of logits [n, vocabulary], which are not changed; -1 for a bad row."""
    with np.errstate(all="ignore"):  # broken logits are reported as -1
        scores = _adjusted(logits, batch)
        rules = _rules(batch, scores.shape[1])
        tokens = np.empty(len(scores), np.int32)
        if (rows := np.flatnonzero(rules.greedy)).size:
            tokens[rows] = _greedy(_take(scores, rows))
        if (rows := np.flatnonzero(~rules.greedy & ~rules.cut)).size:
            keys = row_keys(batch.seeds[rows], batch.positions[rows])
            tokens[rows] = _draw_from_all(_take(scores, rows), rules.temperature[rows], keys)
        for short in shortlists(scores, rules, np.flatnonzero(~rules.greedy & rules.cut)):
            keys = row_keys(batch.seeds[short.rows], batch.positions[short.rows])
            tokens[short.rows] = key_ids(_draw(short, keys, token_words(scores.shape[1])))
    return tokens


def process(logits: Float32, batch: SamplingBatch) -> Float32:
    """What `sample` draws from: logits [n, vocabulary] after penalties, bias, temperature; -inf if removed.

    A greedy temperature counts as 1 here: it takes the best of what is left. A bad row loses no tokens.
    """
    with np.errstate(all="ignore"):
        scores = _adjusted(logits, batch)
        rules = _rules(batch, scores.shape[1])
        result = scores / rules.temperature[:, None]
        for short in shortlists(scores, rules, np.flatnonzero(rules.cut)):
            kept = np.zeros((len(short.rows), scores.shape[1]), bool)
            row, place = np.nonzero(np.arange(short.ids.shape[1]) < short.counts[:, None])
            kept[row, short.ids[row, place]] = True
            kept |= short.counts[:, None] == 0
            result[short.rows] = np.where(kept, result[short.rows], np.float32(-np.inf))
    return result


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of some rows, [rows] each, with their edge cases resolved.

    greedy: the best token wins. cut: top_k, top_p or min_p is on. limit: the tokens top_k leaves at most.
    """

    greedy: Bool
    cut: Bool
    temperature: Float32
    limit: Int64
    top_p: Float32
    min_p: Float32

    def take(self, rows: Rows) -> Rules:
        """The settings of these rows."""
        return Rules(
            self.greedy[rows],
            self.cut[rows],
            self.temperature[rows],
            self.limit[rows],
            self.top_p[rows],
            self.min_p[rows],
        )


def _rules(batch: SamplingBatch, vocabulary: int) -> Rules:
    only_best = (batch.top_p <= 0) | (batch.min_p >= 1)
    limit = np.where(batch.top_k > 0, np.minimum(batch.top_k, vocabulary), vocabulary).astype(np.int64)
    limit[only_best] = 1
    top_p = np.where(only_best, np.float32(1), batch.top_p)
    cut = (limit < vocabulary) | (top_p < 1) | (batch.min_p > 0)
    cold = batch.temperature < _GREEDY_BELOW
    temperature = np.where(cold, np.float32(1), batch.temperature)
    return Rules(cold | (limit == 1), cut, temperature, limit, top_p, batch.min_p)


def _take(scores: Float32, rows: Rows) -> Float32:
    """The scores of some rows; no copy where they are all of them."""
    return scores if len(rows) == len(scores) else scores[rows]


def _adjusted(logits: Float32, batch: SamplingBatch) -> Float32:
    """Logits after penalties and bias: a copy, or the logits themselves if no row has any."""
    if not batch.seen_ids.size and not batch.bias_ids.size:
        return np.ascontiguousarray(logits, np.float32)
    scores = np.array(logits, np.float32)
    every = np.arange(len(scores))
    row, ids, counts = np.repeat(every, np.diff(batch.seen_offsets)), batch.seen_ids, batch.seen_counts
    x, repetition = scores[row, ids], batch.repetition[row]
    x = np.where(x > 0, x / repetition, x * repetition)
    x -= np.where(counts > 0, batch.presence[row], np.float32(0))
    x -= batch.frequency[row] * counts.astype(np.float32)
    scores[row, ids] = x
    scores[np.repeat(every, np.diff(batch.bias_offsets)), batch.bias_ids] += batch.bias_values
    return scores


def _greedy(scores: Float32) -> Int32:
    tokens = scores.argmax(axis=1)
    best = scores[np.arange(len(scores)), tokens]
    return np.where(np.isfinite(best), tokens, -1).astype(np.int32)


def _scaled(scores: Float32, best: Float32, temperature: Float32) -> Float32:
    """The z of scores, given the best of their row and its temperature (broadcast); -inf stays -inf."""
    return (scores - np.where(best == -np.inf, np.float32(0), best)) / temperature


def _mass(w: Float32) -> Int64:
    return (w * _MASS_UNIT).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Shortlist:
    """What the rules leave of some rows: the first counts[i] of ids[i], best first.

    rows: [m], counts: [m], 0 for a bad row. ids: int32 [m, k]. z: float32 [m, k].
    """

    rows: Rows
    ids: Int32
    z: Float32
    counts: Int64


def shortlists(scores: Float32, rules: Rules, rows: Rows) -> Iterator[Shortlist]:
    """The shortlists of these rows, each row in one of them.

    A row is done once one of the k best tokens is rejected, or top_k wants no more than k; most are after 64.
    """
    vocabulary = scores.shape[1]
    for tier in (*_TIERS, vocabulary):
        limit = rules.limit[rows]
        ready = (limit <= tier) | (limit == vocabulary)
        if not ready.any():
            continue
        short = _truncate(scores, rules, rows[ready], min(tier, int(limit[ready].max())))
        done = (short.counts < short.ids.shape[1]) | (limit[ready] <= tier)
        yield Shortlist(short.rows[done], short.ids[done], short.z[done], short.counts[done])
        ready[ready] = done
        rows = rows[~ready]
        if not rows.size:
            return


def _truncate(scores: Float32, rules: Rules, rows: Rows, k: int) -> Shortlist:
    """How many of the k best tokens of these rows top_k, top_p and min_p keep."""
    scores, rules = _take(scores, rows), rules.take(rows)
    best = best_tokens(scores, k)
    z = _scaled(best.scores, best.scores[:, :1], rules.temperature[:, None])
    w = exp32(z)
    within = (best.ids >= 0) & (np.arange(k) < rules.limit[:, None])
    keep = within & (w >= rules.min_p[:, None])
    mass = np.where(within, _mass(w), 0)
    before = np.cumsum(mass, axis=1) - mass

    def counts(total: Float64) -> Int64:
        share = np.where(rules.top_p < 1, rules.top_p * total, np.inf)
        kept: Int64 = np.logical_and.accumulate(keep & (before < share[:, None]), axis=1).sum(axis=1)
        return kept

    total = mass.sum(axis=1).astype(np.float64)
    beyond = np.flatnonzero((rules.limit > k) & (rules.top_p < 1) & (best.ids[:, -1] >= 0))
    if beyond.size:
        total[beyond] = _estimated_mass(scores, best.scores[:, 0], rules.temperature, beyond)
        sure = counts(total * (1 - _ESTIMATE_ERROR)) == counts(total * (1 + _ESTIMATE_ERROR))
        beyond = beyond[~sure[beyond]]
        total[beyond] = _exact_mass(scores, best.scores[:, 0], rules.temperature, beyond)
    return Shortlist(rows, best.ids, z, counts(total))


def _estimated_mass(scores: Float32, best: Float32, temperature: Float32, rows: Rows) -> Float64:
    """`_exact_mass` within _ESTIMATE_ERROR, several times as fast."""
    z = np.empty(scores.shape[1], np.float32)
    total = np.empty(len(rows))
    for index, row in enumerate(rows):  # one after the other: a row fits into the cache
        np.subtract(scores[row], best[row], out=z)
        np.multiply(z, 1 / temperature[row], out=z)
        np.maximum(z, -80, out=z)  # what is below weighs nothing, and subnormal results are slow
        total[index] = np.exp(z, out=z).sum()
    return total * _MASS_UNIT


def _exact_mass(scores: Float32, best: Float32, temperature: Float32, rows: Rows) -> Float64:
    """Sum of m over the vocabulary for these rows."""
    total = np.empty(len(rows))
    for index, row in enumerate(rows):
        total[index] = _mass(exp32(_scaled(scores[row], best[row], temperature[row]))).sum()
    return total


def _draw(short: Shortlist, keys: UInt32, words: UInt32) -> Int64:
    """Rank key of the winner of each row; NO_TOKEN for a bad row."""
    width = max(1, int(short.counts.max(initial=0)))
    ids = short.ids[:, :width]
    noise = gumbel(hash32(keys[:, None], words[ids]))
    candidates = rank_keys(short.z[:, :width] + noise, ids)
    candidates[np.arange(width) >= short.counts[:, None]] = NO_TOKEN
    winners: Int64 = candidates.max(axis=1)
    return winners


def _draw_from_all(scores: Float32, temperature: Float32, keys: UInt32) -> Int32:
    """The draw where no rule removes a token.

    A token that is not among the k best has at most the last one's z: few hashes give it the noise to win.
    """
    rows, vocabulary = scores.shape
    best = best_tokens(scores, min(_TIERS[0], vocabulary))
    top = best.scores[:, 0]
    z = _scaled(best.scores, top[:, None], temperature[:, None])
    words = token_words(vocabulary)
    winners = _draw(Shortlist(np.arange(rows), best.ids, z, (best.ids >= 0).sum(axis=1)), keys, words)
    needed = key_scores(winners).astype(np.float64) - z[:, -1]
    bounds = np.where(best.ids[:, -1] >= 0, hash_bound(needed), 0)
    lucky = [(row, *lucky_tokens(keys[row], words, bounds[row])) for row in np.flatnonzero(bounds)]
    if lucky:
        row = np.concatenate([np.full(len(ids), row) for row, ids, _ in lucky])
        ids = np.concatenate([ids for _, ids, _ in lucky])
        others = _scaled(scores[row, ids], top[row], temperature[row])
        others += gumbel(np.concatenate([hashes for _, _, hashes in lucky]))
        np.maximum.at(winners, row, rank_keys(others, ids))
    return key_ids(winners)
