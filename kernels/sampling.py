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
from .arrays import Float32, Int32
from .noise import gumbel, hash32, row_keys, token_words
from .step import Step

_GREEDY_BELOW = np.float32(1e-5)
_FORBIDDEN = np.float32(-np.inf)
_NOISE_SPAN = np.float32(26)
"""More than the largest noise is above the smallest."""


def sample(logits: Float32, step: Step) -> Int32:
    """The next token of each row of logits [samples, vocabulary], which are not changed; -1 for a bad row."""
    tokens = np.full(len(logits), -1, np.int32)
    keys = row_keys(step.seeds, step.draw_positions)
    with np.errstate(all="ignore"):  # broken logits are reported as -1
        for row in range(len(logits)):
            x = _adjusted(logits, step, row)
            best = x.argmax()
            if not np.isfinite(x[best]):
                continue
            tokens[row] = best
            if step.temperature[row] >= _GREEDY_BELOW:
                ids = np.sort(_left(x, step, row))
                z = (x[ids] - x[best]) / step.temperature[row]
                near = z > -_NOISE_SPAN  # what is further below can't beat the best
                ids, z = ids[near], z[near]
                noise = gumbel(hash32(keys[row], token_words(len(x))[ids]))
                tokens[row] = ids[(z + noise).argmax()]
    return tokens


def process(logits: Float32, step: Step) -> Float32:
    """What `sample` draws from: logits [samples, vocabulary] after mask, penalties and bias, by temperature.

    -inf where a token was removed. A greedy temperature counts as 1. A bad row loses no tokens to rule 6.
    """
    result = np.full(logits.shape, _FORBIDDEN)
    with np.errstate(all="ignore"):
        for row in range(len(logits)):
            x = _adjusted(logits, step, row)
            left = _left(x, step, row) if np.isfinite(x.max()) else slice(None)
            result[row, left] = x[left] / _temperature(step, row)
    return result


def _adjusted(logits: Float32, step: Step, row: int) -> Float32:
    """The x of all tokens of a row: rules 1 to 3."""
    x = np.array(logits[row], np.float32)
    if step.counts.mask_words:
        bits = np.unpackbits(step.mask[row].astype("<u4").view(np.uint8), bitorder="little")
        x[bits[: len(x)] == 0] = _FORBIDDEN
    some = slice(*step.seen_offsets[row : row + 2])
    ids, counts, repetition = step.seen_ids[some], step.seen_counts[some], step.repetition[row]
    seen = np.where(x[ids] > 0, x[ids] / repetition, x[ids] * repetition)
    seen -= np.where(counts > 0, step.presence[row], np.float32(0))
    x[ids] = seen - step.frequency[row] * counts.astype(np.float32)
    some = slice(*step.bias_offsets[row : row + 2])
    x[step.bias_ids[some]] += step.bias_values[some]
    return x


def _temperature(step: Step, row: int) -> np.float32:
    temperature: np.float32 = step.temperature[row]
    return temperature if temperature >= _GREEDY_BELOW else np.float32(1)


def _left(x: Float32, step: Step, row: int) -> NDArray[np.intp]:
    """The ids of the tokens that rule 6 leaves, in its order if it is on. x: of a row that is not bad."""
    top_k, top_p, min_p = step.top_k[row], step.top_p[row], step.min_p[row]
    ids = np.flatnonzero(x > _FORBIDDEN)
    if top_k <= 0 and top_p >= 1 and min_p <= 0:
        return ids
    ids = ids[_order(x[ids])]
    if top_p <= 0 or min_p >= 1:
        return ids[:1]
    if top_k > 0:
        ids = ids[:top_k]
    w = exp32((x[ids] - x[ids[0]]) / _temperature(step, row))
    m = (w * np.float32(2**40)).astype(np.int64)
    fits = w >= min_p
    if top_p < 1:
        fits &= np.cumsum(m) - m < np.float64(top_p) * m.sum()
    return ids[np.logical_and.accumulate(fits)]


def _order(x: Float32) -> NDArray[np.int64]:
    """Places of x downwards, equal ones by place upwards."""
    bits = (x + np.float32(0)).view(np.int32)  # adding 0 turns -0 into +0: they are equal
    upwards = (bits ^ (bits >> 31 & 0x7FFFFFFF)).astype(np.int64)  # integers that compare as the floats do
    order: NDArray[np.int64] = np.sort(np.arange(len(x)) - upwards * 2**32) & 0xFFFFFFFF
    return order
