"""Sampling on the device, by the rules of `kernels.sampling`, token by token the same.

A row is cut into chunks of the vocabulary. No row is sorted: the last token that top_k or top_p leaves is
searched for by its key, an integer that orders tokens as their logits do, sixteen ranges of keys at a time.
What is added up are integers, so the order of a sum does not matter. Every pass is a launch; it reads what
the chunks of the one before it have found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from .. import sampling as rules
from ..step import Step
from .arithmetic import EXACT, exp32
from .batch import (
    BIAS_IDS,
    BIAS_OFFSETS,
    BIAS_VALUES,
    KEYS,
    MASK,
    MASK_WORDS,
    SEEN_COUNTS,
    SEEN_IDS,
    SEEN_OFFSETS,
    Batch,
)
from .kernel import Draw, Function, Kernel, Trial
from .noise import gumbel, token_hash

CHUNK = 2048
"""Tokens of a program."""

ROUNDS = 8
"""Of a search: each finds four bits of a key."""

_KEYS, _MASK, _MASK_WORDS = map(tl.constexpr, (KEYS, MASK, MASK_WORDS))
_SEEN_OFFSETS, _SEEN_IDS, _SEEN_COUNTS = map(tl.constexpr, (SEEN_OFFSETS, SEEN_IDS, SEEN_COUNTS))
_BIAS_OFFSETS, _BIAS_IDS, _BIAS_VALUES = map(tl.constexpr, (BIAS_OFFSETS, BIAS_IDS, BIAS_VALUES))
_GREEDY_BELOW = tl.constexpr(float(np.float32(1e-5)))
_TOP_K, _TOP_P = tl.constexpr(0), tl.constexpr(1)
_IDS = tl.constexpr(0xFFFFFFFF)


class Rules(NamedTuple):
    """Which rules a step's samples have, so which passes are made.

    adjusted: a mask, a penalty or a bias. filtered: top_k, top_p or min_p.
    """

    adjusted: bool
    filtered: bool

    @classmethod
    def of(cls, step: Step) -> Rules:
        """Those of a step."""
        counts = step.counts
        listed = step.seen_offsets[-1] > 0 or step.bias_offsets[-1] > 0
        some = (
            (step.top_k > 0) | ((step.top_p < 1) & (step.top_p > 0)) | ((step.min_p > 0) & (step.min_p < 1))
        )
        return cls(bool(counts.mask_words or listed), bool((some & (step.temperature >= 1e-5)).any()))


@triton.jit
def _key(x):
    """Integers from 0 to 2^32 - 1 that are ordered as float32 values are; NaN is above all."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0 becomes +0
    bits = tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
    return bits.to(tl.int64) + 2147483648


@triton.jit
def _value(key):
    """The float32 value of a key."""
    bits = (key - 2147483648).to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _mask(logits, out, memory, vocabulary, stride, SIZE: tl.constexpr):
    """Rule 1: logits of tokens that the mask does not allow become -inf; the others are copied."""
    row = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    held = token < vocabulary
    words = tl.load(memory + _MASK_WORDS)
    mask = memory + tl.load(memory + _MASK) + row * words
    word = tl.load(mask + token // 32, mask=held & (token // 32 < words), other=-1)
    x = tl.load(logits + row * stride + token, mask=held, other=0.0)
    tl.store(
        out + row * vocabulary + token,
        tl.where(((word >> (token % 32)) & 1) == 1, x, float("-inf")),
        mask=held,
    )


@triton.jit
def _penalize(x, memory, repetition, presence, frequency, vocabulary, SIZE: tl.constexpr):
    """Rule 2, in place."""
    row = tl.program_id(0).to(tl.int64)
    offsets = memory + tl.load(memory + _SEEN_OFFSETS) + row
    ids, counts = memory + tl.load(memory + _SEEN_IDS), memory + tl.load(memory + _SEEN_COUNTS)
    r, p, f = tl.load(repetition + row), tl.load(presence + row), tl.load(frequency + row)
    end = tl.load(offsets + 1)
    for start in range(tl.load(offsets), end, SIZE):
        at = start + tl.arange(0, SIZE)
        held = at < end
        places = x + row * vocabulary + tl.load(ids + at, mask=held, other=0)
        value = tl.load(places, mask=held, other=0.0)
        count = tl.load(counts + at, mask=held, other=0)
        value = tl.where(value > 0, tl.div_rn(value, tl.full(value.shape, r, tl.float32)), value * r)
        value = value - tl.where(count > 0, p, 0.0)
        tl.store(places, value - f * count.to(tl.float32), mask=held)


@triton.jit
def _bias(x, memory, vocabulary, SIZE: tl.constexpr):
    """Rule 3, in place."""
    row = tl.program_id(0).to(tl.int64)
    offsets = memory + tl.load(memory + _BIAS_OFFSETS) + row
    ids, values = memory + tl.load(memory + _BIAS_IDS), memory + tl.load(memory + _BIAS_VALUES)
    end = tl.load(offsets + 1)
    for start in range(tl.load(offsets), end, SIZE):
        at = start + tl.arange(0, SIZE)
        held = at < end
        places = x + row * vocabulary + tl.load(ids + at, mask=held, other=0)
        bias = tl.load(values + at, mask=held, other=0).to(tl.float32, bitcast=True)
        tl.store(places, tl.load(places, mask=held, other=0.0) + bias, mask=held)


@triton.jit
def _chunk(x, row, vocabulary, stride, SIZE: tl.constexpr):
    """Ids and logits of this program's chunk; -inf behind the last token."""
    token = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    return token, tl.load(x + row * stride + token, mask=token < vocabulary, other=float("-inf"))


@triton.jit
def _best(x, found, vocabulary, stride, SIZE: tl.constexpr):
    """The best token of a chunk: its key, and the lower its id the larger the number below that."""
    row = tl.program_id(0).to(tl.int64)
    token, value = _chunk(x, row, vocabulary, stride, SIZE)
    ranked = (_key(value) - 2147483648) * 4294967296 + (token.to(tl.int64) ^ _IDS)
    best = tl.max(tl.where(token < vocabulary, ranked, -9223372036854775808), 0)
    tl.store(found + row * tl.num_programs(1) + tl.program_id(1), best)


@triton.jit
def _row_best(found, row, CHUNKS: tl.constexpr, WIDE: tl.constexpr):
    """The best token of a row: its id, its key."""
    chunk = tl.arange(0, WIDE)
    ranked = tl.load(found + row * CHUNKS + chunk, mask=chunk < CHUNKS, other=-9223372036854775808)
    best = tl.max(ranked, 0)
    return ((best & _IDS) ^ _IDS).to(tl.int32), (best >> 32) + 2147483648


@triton.jit
def _masses(value, best, temperature):
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
def _tallied(tally, row, CHUNKS: tl.constexpr, WIDE: tl.constexpr):
    """Of a row and the key it was cut at: mass and number of the tokens above, number of those that equal."""
    chunk = tl.arange(0, WIDE)
    parts = tally + (row * CHUNKS + chunk) * 4
    mass = tl.sum(tl.load(parts, mask=chunk < CHUNKS, other=0), 0)
    above = tl.sum(tl.load(parts + 1, mask=chunk < CHUNKS, other=0), 0)
    equal = tl.sum(tl.load(parts + 2, mask=chunk < CHUNKS, other=0), 0)
    return mass, above, equal


@triton.jit
def _mass_limit(tally, cuts, row, top_k, top_p, best, temperature, CHUNKS: tl.constexpr, WIDE: tl.constexpr):
    """The sum before it at which top_p rejects a token: its share of what top_k leaves."""
    mass, above, equal = _tallied(tally, row, CHUNKS, WIDE)
    if top_k > 0:
        key = tl.load(cuts + row)
        last = _value(key)
        m = (exp32(tl.div_rn(last - best, temperature)) * 1099511627776.0).to(tl.int64)
        mass = mass + tl.minimum(top_k - above, equal) * m
    return top_p.to(tl.float64) * mass.to(tl.float64)


@triton.jit
def _settings(temperatures, top_ks, top_ps, min_ps, row, vocabulary):
    """A row's temperature and rules; top_k 0 where it is off. Whether it draws at all, or is greedy."""
    temperature, top_p, min_p = tl.load(temperatures + row), tl.load(top_ps + row), tl.load(min_ps + row)
    top_k = tl.load(top_ks + row).to(tl.int64)
    top_k = tl.where(top_k >= vocabulary, 0, top_k)
    draws = (temperature >= _GREEDY_BELOW) & (top_p > 0) & (min_p < 1)
    return temperature, top_k, top_p, min_p, draws


@triton.jit(do_not_specialize=["samples"])
def _narrow(
    x, found, sums, tally, cuts, temperatures, top_ks, top_ps, min_ps, vocabulary, stride, samples,
    ROUND: tl.constexpr, KIND: tl.constexpr, SIZE: tl.constexpr, CHUNKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A round of a search for the smallest key such that less than the limit is above it.

    Of 15 keys, what this chunk has above each: tokens, or their mass. Round 8 only looks at what the others
    found. cuts: the bits found so far, those of top_k and behind them those of top_p.
    """
    row = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, _, draws = _settings(temperatures, top_ks, top_ps, min_ps, row, vocabulary)
    on = draws & (top_k > 0) if KIND == _TOP_K else draws & (top_p < 1)
    if on:
        _, best_key = _row_best(found, row, CHUNKS, WIDE)
        best = _value(best_key)
        own = cuts + KIND * samples + row
        # Rounds write to two places by turns: other programs of this round still read the last one's.
        if KIND == _TOP_K:
            limit = top_k
        else:
            limit = _mass_limit(tally, cuts, row, top_k, top_p, best, temperature, CHUNKS, WIDE)
        key = best_key * 0
        for done in tl.static_range(ROUND):
            digit = _digit(sums, done * samples + row, limit, CHUNKS, WIDE, KIND)
            key = key + (digit << (28 - 4 * done))
        if ROUND == 8:
            if tl.program_id(1) == 0:
                tl.store(own, key)
        else:
            _, value = _chunk(x, row, vocabulary, stride, SIZE)
            keys = _key(value)
            weight = (value > float("-inf")).to(tl.int64)
            if KIND == _TOP_P:
                _, _, mass = _masses(value, best, temperature)
                weight = tl.where(weight > 0, mass, 0)
            parts = sums + ((ROUND * samples + row) * CHUNKS + tl.program_id(1)) * 16
            for d in tl.static_range(15):
                threshold = key + (d << (28 - 4 * ROUND)) + ((1 << (28 - 4 * ROUND)) - 1)
                tl.store(parts + d, tl.sum(tl.where(keys > threshold, weight, 0), 0))


@triton.jit(do_not_specialize=["samples"])
def _count(
    x, found, tally, cuts, temperatures, top_ks, top_ps, min_ps, vocabulary, stride, samples,
    KIND: tl.constexpr, SIZE: tl.constexpr, CHUNKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What a chunk has above the key of a cut (above all, where there is none): mass, tokens; and equal ones.

    Also the largest key that min_p rejects, -1 if there is none.
    """
    row = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, min_p, draws = _settings(temperatures, top_ks, top_ps, min_ps, row, vocabulary)
    if draws:
        _, best_key = _row_best(found, row, CHUNKS, WIDE)
        _, value = _chunk(x, row, vocabulary, stride, SIZE)
        there = value > float("-inf")
        _, w, mass = _masses(value, _value(best_key), temperature)
        on = top_k > 0 if KIND == _TOP_K else top_p < 1
        cut = best_key * 0 - 1
        if on:
            cut = tl.load(cuts + KIND * samples + row)
        keys = _key(value)
        above = there & (keys > cut)
        parts = tally + (row * CHUNKS + tl.program_id(1)) * 4
        tl.store(parts, tl.sum(tl.where(above, mass, 0), 0))
        tl.store(parts + 1, tl.sum(above.to(tl.int64), 0))
        tl.store(parts + 2, tl.sum((there & (keys == cut)).to(tl.int64), 0))
        tl.store(parts + 3, tl.max(tl.where(there & (w < min_p), keys, -1), 0))


@triton.jit
def _kept(keys, there, cut, tally, row, CHUNKS: tl.constexpr, WIDE: tl.constexpr):
    """Of the tokens that equal the key of a cut: how many such stand before each of them in the row."""
    chunk = tl.arange(0, WIDE)
    before = tally + (row * CHUNKS + chunk) * 4 + 2
    earlier = tl.sum(tl.load(before, mask=chunk < tl.program_id(1), other=0), 0)
    equal = (there & (keys == cut)).to(tl.int32)
    return earlier + (tl.cumsum(equal, 0) - equal).to(tl.int64)


@triton.jit(do_not_specialize=["samples"])
def _draw(
    x, found, tally, cuts, drawn, memory, temperatures, top_ks, top_ps, min_ps, vocabulary, stride, samples,
    FILTERED: tl.constexpr, SIZE: tl.constexpr, CHUNKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Rule 7 in a chunk: the largest z + noise of the tokens that are left, ranked as in `_best`."""
    row = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, _, draws = _settings(temperatures, top_ks, top_ps, min_ps, row, vocabulary)
    if draws:
        _, best_key = _row_best(found, row, CHUNKS, WIDE)
        best = _value(best_key)
        token, value = _chunk(x, row, vocabulary, stride, SIZE)
        left = value > float("-inf")
        z, _, mass = _masses(value, best, temperature)
        if FILTERED:
            keys, chunk = _key(value), tl.arange(0, WIDE)
            if top_k > 0:
                cut = tl.load(cuts + row)
                _, above, _ = _tallied(tally, row, CHUNKS, WIDE)
                rank = above + _kept(keys, value > float("-inf"), cut, tally, row, CHUNKS, WIDE)
                left = left & ((keys > cut) | ((keys == cut) & (rank < top_k)))
            own = tally + samples * CHUNKS * 4
            if top_p < 1:
                cut = tl.load(cuts + samples + row)
                limit = _mass_limit(tally, cuts, row, top_k, top_p, best, temperature, CHUNKS, WIDE)
                before, _, _ = _tallied(own, row, CHUNKS, WIDE)
                rank = _kept(keys, value > float("-inf"), cut, own, row, CHUNKS, WIDE)
                fits = (before + rank * mass).to(tl.float64) < limit
                left = left & ((keys > cut) | ((keys == cut) & fits))
            rejected = tl.load(own + (row * CHUNKS + chunk) * 4 + 3, mask=chunk < CHUNKS, other=-1)
            left = left & (keys > tl.max(rejected, 0))
        low = tl.load(memory + tl.load(memory + _KEYS) + 2 * row).to(tl.uint32, bitcast=True)
        high = tl.load(memory + tl.load(memory + _KEYS) + 2 * row + 1).to(tl.uint32, bitcast=True)
        score = _key(z + gumbel(token_hash(token, low, high)))
        ranked = (score - 2147483648) * 4294967296 + (token.to(tl.int64) ^ _IDS)
        ranked = tl.where(left, ranked, -9223372036854775808)
        tl.store(drawn + row * CHUNKS + tl.program_id(1), tl.max(ranked, 0))


@triton.jit
def _pick(
    found, drawn, tokens, temperatures, top_ks, top_ps, min_ps, vocabulary,
    CHUNKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The token of a row: -1 if it is bad, the best, or the one drawn."""
    row = tl.program_id(0).to(tl.int64)
    _, _, _, _, draws = _settings(temperatures, top_ks, top_ps, min_ps, row, vocabulary)
    token, best_key = _row_best(found, row, CHUNKS, WIDE)
    if draws:
        token, _ = _row_best(drawn, row, CHUNKS, WIDE)
    good = tl.abs(_value(best_key)) < float("inf")
    tl.store(tokens + row, tl.where(good, token, -1))


def sample(logits: Tensor, batch: Batch, wanted: Rules | None = None) -> Tensor:
    """`kernels.sampling.sample` of logits [samples, vocabulary] -> int32 [samples].

    wanted: the rules to follow, those of the batch if they are not given.
    """
    samples, vocabulary = logits.shape
    adjusted, filtered = Rules.of(batch.step) if wanted is None else wanted
    tokens = torch.empty(samples, dtype=torch.int32, device=logits.device)
    if not samples:
        return tokens
    chunks = triton.cdiv(vocabulary, CHUNK)
    grid = (samples, chunks)
    sizes = {"CHUNKS": chunks, "WIDE": triton.next_power_of_2(chunks)}
    floats = [batch.array(name, torch.float32) for name in ("temperature", "top_p", "min_p")]
    settings = floats[0], batch.array("top_k"), floats[1], floats[2]
    x, memory = logits, batch.memory
    if adjusted:
        x = torch.empty_like(logits, memory_format=torch.contiguous_format)
        _mask[grid](logits, x, memory, vocabulary, logits.stride(0), SIZE=CHUNK)
        penalties = [batch.array(name, torch.float32) for name in ("repetition", "presence", "frequency")]
        _penalize[(samples,)](x, memory, *penalties, vocabulary, SIZE=256, **EXACT)
        _bias[(samples,)](x, memory, vocabulary, SIZE=256, **EXACT)
    stride = x.stride(0)

    def words(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int64, device=logits.device)

    found, drawn, cuts, tally = (words(n, *grid) for n in (1, 1, 1, 8))
    _best[grid](x, found, vocabulary, stride, SIZE=CHUNK)
    if filtered:
        cuts, sums = words(2, samples), words(ROUNDS, *grid, 16)
        for kind in (0, 1):
            for step in range(ROUNDS + 1):
                _narrow[grid if step < ROUNDS else (samples, 1)](
                    x, found, sums, tally, cuts, *settings, vocabulary, stride, samples,
                    ROUND=step, KIND=kind, SIZE=CHUNK, **sizes, **EXACT,
                )  # fmt: skip
            _count[grid](
                x, found, tally[4 * kind :], cuts, *settings, vocabulary, stride, samples,
                KIND=kind, SIZE=CHUNK, **sizes, **EXACT,
            )  # fmt: skip
    _draw[grid](
        x, found, tally, cuts, drawn, memory, *settings, vocabulary, stride, samples,
        FILTERED=filtered, SIZE=CHUNK, **sizes, **EXACT,
    )  # fmt: skip
    _pick[(samples,)](found, drawn, tokens, *settings, vocabulary, **sizes)
    return tokens


def _plain(logits: Tensor, batch: Batch, wanted: Rules | None = None) -> Tensor:
    return torch.from_numpy(rules.sample(logits.cpu().numpy(), batch.step)).to(logits.device)


def _trials(draw: Draw) -> Iterator[Trial]:
    """Rows with each rule alone and with all, ties among their logits, and rows that are bad."""
    generator = draw.generator
    for samples, vocabulary in ((9, 100), (5, 5000)):
        logits = draw.normal(samples, vocabulary, scale=3.0)
        logits[::2] = logits[::2].round()
        logits[-1, 3] = torch.nan
        listed = np.arange(samples + 1, dtype=np.int32) * 3
        step = Step.of(
            temperature=generator.choice([0.0, 0.7, 1.0, 1.5], samples),
            top_k=generator.choice([0, 1, 17, 70], samples),
            top_p=generator.choice([0.3, 0.95, 1.0], samples),
            min_p=generator.choice([0.0, 0.0, 0.05], samples),
            repetition=generator.choice([1.0, 1.3], samples),
            presence=generator.choice([0.0, 0.5], samples),
            frequency=generator.choice([0.0, 0.1], samples),
            seeds=generator.integers(0, 2**63, samples),
            draw_positions=generator.integers(0, 1000, samples),
            seen_offsets=listed,
            seen_ids=np.tile([5, 50, 7], samples),
            seen_counts=generator.integers(0, 3, 3 * samples),
            bias_offsets=listed,
            bias_ids=np.tile([1, 50, 8], samples),
            bias_values=np.tile(np.array([-np.inf, 2, -1], np.float32), samples),
            mask=generator.integers(0, 2**32, (samples, -(-vocabulary // 32)), np.uint32),
        )

        def trial(f: Function, logits: Tensor = logits, step: Step = step) -> list[Tensor]:
            return [f(logits, Batch.of(step, logits.device))]

        yield trial


KERNEL = Kernel("sample", sample, _plain, _trials)
