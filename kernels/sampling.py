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

import numpy as np
from numpy.typing import NDArray

from .arithmetic import exp32
from .interface import Float32, Int32
from .noise import gumbel, hash32, row_keys, token_words
from .step import Step

Ids = NDArray[np.intp]

_GREEDY_BELOW = np.float32(1e-5)
_FORBIDDEN = np.float32(-np.inf)


def sample(logits: Float32, step: Step) -> Int32:
    """The next token of each row of logits [samples, vocabulary], which are not changed; -1 for a bad row."""
    with np.errstate(all="ignore"):  # broken logits are reported as -1
        return np.array([_token(logits[row], step, row) for row in range(len(logits))], np.int32)


def process(logits: Float32, step: Step) -> Float32:
    """What `sample` draws from: logits [samples, vocabulary] after mask, penalties and bias, by temperature.

    -inf where a token was removed. A greedy temperature counts as 1. A bad row loses no tokens to rule 6.
    """
    result = np.empty(logits.shape, np.float32)
    with np.errstate(all="ignore"):
        for row in range(len(logits)):
            x, temperature = _adjusted(logits[row], step, row), _temperature(step, row)
            kept = _kept(x, (x - x.max()) / temperature, step, row) if np.isfinite(x.max()) else slice(None)
            result[row] = _FORBIDDEN
            result[row, kept] = x[kept] / temperature
    return result


def _token(logits: Float32, step: Step, row: int) -> int:
    x = _adjusted(logits, step, row)
    best = x.max()
    if not np.isfinite(best):
        return -1
    if step.temperature[row] < _GREEDY_BELOW or _most(step, row, len(x)) == 1:
        return int(x.argmax())
    z = (x - best) / step.temperature[row]
    kept = np.sort(_kept(x, z, step, row))
    keys = row_keys(step.seeds[row : row + 1], step.draw_positions[row : row + 1])[0]
    return int(kept[(z[kept] + gumbel(hash32(keys, token_words(len(x))[kept]))).argmax()])


def _adjusted(logits: Float32, step: Step, row: int) -> Float32:
    """A row of logits after mask, penalties and bias."""
    x = np.array(logits, np.float32)
    if step.mask.size:
        allowed = np.unpackbits(step.mask[row].astype("<u4").view(np.uint8), bitorder="little")
        x[allowed[: len(x)] == 0] = _FORBIDDEN
    seen = slice(step.seen_offsets[row], step.seen_offsets[row + 1])
    ids, counts, repetition = step.seen_ids[seen], step.seen_counts[seen], step.repetition[row]
    penalized = np.where(x[ids] > 0, x[ids] / repetition, x[ids] * repetition)
    penalized -= np.where(counts > 0, step.presence[row], np.float32(0))
    x[ids] = penalized - step.frequency[row] * counts.astype(np.float32)
    biased = slice(step.bias_offsets[row], step.bias_offsets[row + 1])
    x[step.bias_ids[biased]] += step.bias_values[biased]
    return x


def _temperature(step: Step, row: int) -> np.float32:
    temperature = step.temperature[row]
    return np.float32(1) if temperature < _GREEDY_BELOW else np.float32(temperature)


def _most(step: Step, row: int, vocabulary: int) -> int:
    """Tokens that top_k leaves at most; one where top_p or min_p leaves the best alone."""
    if step.top_p[row] <= 0 or step.min_p[row] >= 1:
        return 1
    return min(int(step.top_k[row]), vocabulary) if step.top_k[row] > 0 else vocabulary


def _kept(x: Float32, z: Float32, step: Step, row: int) -> Ids:
    """What top_k, top_p and min_p leave of the tokens that are not forbidden, best first."""
    order = _ordered(x)[: _most(step, row, len(x))]
    w = exp32(z[order])
    m = (w * np.float32(2**40)).astype(np.int64)
    fits = w >= step.min_p[row]
    if 0 < step.top_p[row] < 1:
        fits &= np.cumsum(m) - m < np.float64(step.top_p[row]) * np.float64(m.sum())
    return order[: fits.argmin()] if not fits.all() else order


def _ordered(x: Float32) -> Ids:
    """Ids by x downwards, equal ones by id upwards, without those at -inf."""
    ids = np.flatnonzero(x > _FORBIDDEN)
    bits = (x[ids] + np.float32(0)).view(np.int32)  # adding 0 turns -0 into +0: they are equal
    upwards = (bits ^ (bits >> 31 & 0x7FFFFFFF)).astype(np.int64)  # integers that compare as the floats do
    return np.sort(ids - upwards * 2**32) & 0xFFFFFFFF
