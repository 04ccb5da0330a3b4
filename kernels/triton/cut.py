"""Where top_k, top_p and min_p cut a row off: rule 6 of `kernels.sampling`.

No row is sorted: the key of the last token that is left is searched for, sixteen ranges of keys at a time.
What is added up are integers, so the order of a sum does not matter.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

from .arithmetic import EXACT, exp32
from .ranking import chunk_of, key_of, row_best, value_of

ROUNDS = 8
"""Of a search: each finds four bits of a key."""

_GREEDY_BELOW = tl.constexpr(float(np.float32(1e-5)))
_ROUNDS = tl.constexpr(ROUNDS)
_TOP_K = tl.constexpr(0)

Settings = tuple[Tensor, Tensor, Tensor, Tensor]
"""Temperature, top_k, top_p and min_p of the samples."""


@triton.jit
def masses(value, best, temperature):
    """z, w, and m of rules 5 and 6."""
    z = tl.div_rn(value - best, tl.full(value.shape, temperature, tl.float32))
    w = exp32(z)
    return z, w, (w * 1099511627776.0).to(tl.int64)


@triton.jit
def _digit(sums, place, limit, CHUNKS: tl.constexpr, WIDE: tl.constexpr, KIND: tl.constexpr):
    """The next four bits of a key: how many of the ranges hold as much as the limit, or more, above them."""
    chunk, range_ = tl.arange(0, WIDE), tl.arange(0, 16)
    parts = sums + (place * CHUNKS + chunk)[:, None] * 16 + range_[None, :]
    above = tl.sum(tl.load(parts, mask=(chunk < CHUNKS)[:, None], other=0), 0)
    if KIND == _TOP_K:
        enough = above >= limit
    else:
        enough = above.to(tl.float64) >= limit
    return tl.sum((enough & (range_ < 15)).to(tl.int64), 0)


@triton.jit
def tallied(tally, row, CHUNKS: tl.constexpr, WIDE: tl.constexpr):
    """Of a row and the key it was cut at: mass and number of the tokens above, number of those that equal."""
    chunk = tl.arange(0, WIDE)
    parts = tally + (row * CHUNKS + chunk) * 4
    mass = tl.sum(tl.load(parts, mask=chunk < CHUNKS, other=0), 0)
    above = tl.sum(tl.load(parts + 1, mask=chunk < CHUNKS, other=0), 0)
    equal = tl.sum(tl.load(parts + 2, mask=chunk < CHUNKS, other=0), 0)
    return mass, above, equal


@triton.jit
def mass_limit(tally, cuts, row, top_k, top_p, best, temperature, CHUNKS: tl.constexpr, WIDE: tl.constexpr):
    """The sum before it at which top_p rejects a token: its share of what top_k leaves."""
    mass, above, equal = tallied(tally, row, CHUNKS, WIDE)
    if top_k > 0:
        key = tl.load(cuts + row)
        last = value_of(key)
        m = (exp32(tl.div_rn(last - best, temperature)) * 1099511627776.0).to(tl.int64)
        mass = mass + tl.minimum(top_k - above, equal) * m
    return top_p.to(tl.float64) * mass.to(tl.float64)


@triton.jit
def settings_of(ts, ks, ps, ms, row, vocabulary):
    """A row's temperature and rules; top_k 0 where it is off. Whether it draws at all, or is greedy."""
    temperature, top_p, min_p = tl.load(ts + row), tl.load(ps + row), tl.load(ms + row)
    top_k = tl.load(ks + row).to(tl.int64)
    top_k = tl.where(top_k >= vocabulary, 0, top_k)
    draws = (temperature >= _GREEDY_BELOW) & (top_p > 0) & (min_p < 1)
    return temperature, top_k, top_p, min_p, draws


@triton.jit(do_not_specialize=["samples", "round"])
def _narrow(
    x, found, sums, tally, cuts, ts, ks, ps, ms, vocabulary, stride, samples,
    round, KIND: tl.constexpr, SIZE: tl.constexpr, CHUNKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A round of a search for the smallest key such that less than the limit is above it.

    Of 15 keys, what this chunk has above each: tokens, or their mass. The last round only looks at what the
    others found. cuts: the bits found so far, those of top_k and behind them those of top_p.
    """
    row = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, _min_p, draws = settings_of(ts, ks, ps, ms, row, vocabulary)
    on = draws & (top_k > 0) if KIND == _TOP_K else draws & (top_p < 1)
    if on:
        _best_token, best_key = row_best(found, row, CHUNKS, WIDE)
        best = value_of(best_key)
        own = cuts + KIND * samples + row
        if KIND == _TOP_K:
            limit = top_k
        else:
            limit = mass_limit(tally, cuts, row, top_k, top_p, best, temperature, CHUNKS, WIDE)
        key = best_key * 0
        for done in range(round):
            digit = _digit(sums, done * samples + row, limit, CHUNKS, WIDE, KIND)
            key = key + (digit << (28 - 4 * done))
        if round == _ROUNDS:
            if tl.program_id(1) == 0:
                tl.store(own, key)
        else:
            _token, value = chunk_of(x, row, vocabulary, stride, SIZE)
            keys = key_of(value)
            weight = (value > float("-inf")).to(tl.int64)
            if KIND != _TOP_K:
                _z, _w, mass = masses(value, best, temperature)
                weight = tl.where(weight > 0, mass, 0)
            parts = sums + ((round * samples + row) * CHUNKS + tl.program_id(1)) * 16
            step = (best_key * 0 + 1) << (28 - 4 * round)
            for d in tl.static_range(15):
                threshold = key + (d + 1) * step - 1
                tl.store(parts + d, tl.sum(tl.where(keys > threshold, weight, 0), 0))


@triton.jit(do_not_specialize=["samples"])
def _count(
    x, found, tally, cuts, ts, ks, ps, ms, vocabulary, stride, samples,
    KIND: tl.constexpr, SIZE: tl.constexpr, CHUNKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What a chunk has above the key of a cut (above all, where there is none): mass, tokens; and equal ones.

    Also the largest key that min_p rejects, -1 if there is none.
    """
    row = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, min_p, draws = settings_of(ts, ks, ps, ms, row, vocabulary)
    if draws:
        _best_token, best_key = row_best(found, row, CHUNKS, WIDE)
        _token, value = chunk_of(x, row, vocabulary, stride, SIZE)
        there = value > float("-inf")
        _z, w, mass = masses(value, value_of(best_key), temperature)
        on = top_k > 0 if KIND == _TOP_K else top_p < 1
        cut = best_key * 0 - 1
        if on:
            cut = tl.load(cuts + KIND * samples + row)
        keys = key_of(value)
        above = there & (keys > cut)
        parts = tally + (row * CHUNKS + tl.program_id(1)) * 4
        tl.store(parts, tl.sum(tl.where(above, mass, 0), 0))
        tl.store(parts + 1, tl.sum(above.to(tl.int64), 0))
        tl.store(parts + 2, tl.sum((there & (keys == cut)).to(tl.int64), 0))
        tl.store(parts + 3, tl.max(tl.where(there & (w < min_p), keys, -1), 0))


def find_cuts(x: Tensor, found: Tensor, settings: Settings, sizes: dict[str, int]) -> tuple[Tensor, Tensor]:
    """Keys at which the rows of x [samples, vocabulary] are cut, and what chunks have above and at them.

    Of top_k, and behind that of top_p. found: the best tokens of chunks. sizes: of the kernels.
    """
    samples, vocabulary = x.shape
    chunks = found.shape[1]
    cuts, tally = found.new_empty(2, samples), found.new_empty(2, samples, chunks, 4)
    sums = found.new_empty(ROUNDS, samples, chunks, 16)
    for kind in (0, 1):
        for step in range(ROUNDS + 1):
            _narrow[samples, chunks if step < ROUNDS else 1](
                x, found, sums, tally, cuts, *settings, vocabulary, x.stride(0), samples, step,
                KIND=kind, **sizes, **EXACT,
            )  # fmt: skip
        _count[samples, chunks](
            x, found, tally[kind], cuts, *settings, vocabulary, x.stride(0), samples,
            KIND=kind, **sizes, **EXACT,
        )  # fmt: skip
    return cuts, tally
