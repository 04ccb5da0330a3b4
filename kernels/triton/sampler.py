"""Sampling on the device, by the rules of `kernels.sampling`, token by token the same.

A row is cut into chunks of the vocabulary. Every pass is a launch; it reads what the chunks of the one before
it have found.
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
from .adjust import adjusted
from .arithmetic import EXACT
from .batch import KEYS, Batch
from .cut import find_cuts, mass_limit, masses, settings_of, tallied
from .kernel import Draw, Function, Kernel, Trial
from .noise import gumbel, token_hash
from .ranking import NOTHING, best_of_chunk, chunk_of, key_of, ranked, row_best, value_of

CHUNK = 2048
"""Tokens of a program."""

_FLOATS = ("temperature", "top_p", "min_p")
_KEYS = tl.constexpr(KEYS)


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
def rank_among_equals(keys, there, cut, tally, row, CHUNKS: tl.constexpr, WIDE: tl.constexpr):
    """Of the tokens that equal the key of a cut: how many such stand before each of them in the row."""
    chunk = tl.arange(0, WIDE)
    before = tally + (row * CHUNKS + chunk) * 4 + 2
    earlier = tl.sum(tl.load(before, mask=chunk < tl.program_id(1), other=0), 0)
    equal = (there & (keys == cut)).to(tl.int32)
    return earlier + (tl.cumsum(equal, 0) - equal).to(tl.int64)


@triton.jit(do_not_specialize=["samples"])
def _draw(
    x, found, tally, cuts, drawn, memory, ts, ks, ps, ms, vocabulary, stride, samples,
    FILTERED: tl.constexpr, SIZE: tl.constexpr, CHUNKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Rule 7 in a chunk: the largest z + noise of the tokens that are left, as a rank."""
    row = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, _min_p, draws = settings_of(ts, ks, ps, ms, row, vocabulary)
    if draws:
        _best_token, best_key = row_best(found, row, CHUNKS, WIDE)
        best = value_of(best_key)
        token, value = chunk_of(x, row, vocabulary, stride, SIZE)
        left = value > float("-inf")
        z, _w, mass = masses(value, best, temperature)
        if FILTERED:
            keys, chunk = key_of(value), tl.arange(0, WIDE)
            if top_k > 0:
                cut = tl.load(cuts + row)
                _mass_above, above, _equal = tallied(tally, row, CHUNKS, WIDE)
                rank = above + rank_among_equals(keys, value > float("-inf"), cut, tally, row, CHUNKS, WIDE)
                left = left & ((keys > cut) | ((keys == cut) & (rank < top_k)))
            own = tally + samples * CHUNKS * 4
            if top_p < 1:
                cut = tl.load(cuts + samples + row)
                limit = mass_limit(tally, cuts, row, top_k, top_p, best, temperature, CHUNKS, WIDE)
                before, _before_count, _before_equal = tallied(own, row, CHUNKS, WIDE)
                rank = rank_among_equals(keys, value > float("-inf"), cut, own, row, CHUNKS, WIDE)
                fits = (before + rank * mass).to(tl.float64) < limit
                left = left & ((keys > cut) | ((keys == cut) & fits))
            rejected = tl.load(own + (row * CHUNKS + chunk) * 4 + 3, mask=chunk < CHUNKS, other=-1)
            left = left & (keys > tl.max(rejected, 0))
        low = tl.load(memory + tl.load(memory + _KEYS) + 2 * row).to(tl.uint32, bitcast=True)
        high = tl.load(memory + tl.load(memory + _KEYS) + 2 * row + 1).to(tl.uint32, bitcast=True)
        noisy = z + gumbel(token_hash(token, low, high))
        best_left = tl.max(tl.where(left, ranked(noisy, token), NOTHING), 0)
        tl.store(drawn + row * CHUNKS + tl.program_id(1), best_left)


@triton.jit
def _pick(
    found, drawn, tokens, ts, ks, ps, ms, vocabulary,
    CHUNKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The token of a row: -1 if it is bad, the best, or the one drawn."""
    row = tl.program_id(0).to(tl.int64)
    _temperature, _top_k, _top_p, _min_p, draws = settings_of(ts, ks, ps, ms, row, vocabulary)
    token, best_key = row_best(found, row, CHUNKS, WIDE)
    if draws:
        token, _score = row_best(drawn, row, CHUNKS, WIDE)
    good = tl.abs(value_of(best_key)) < float("inf")
    tl.store(tokens + row, tl.where(good, token, -1))


def sample(logits: Tensor, batch: Batch, wanted: Rules | None = None) -> Tensor:
    """`kernels.sampling.sample` of logits [samples, vocabulary] -> int32 [samples].

    wanted: the rules to follow, those of the batch if they are not given.
    """
    samples, vocabulary = logits.shape
    asked = Rules.of(batch.step) if wanted is None else wanted
    tokens = torch.empty(samples, dtype=torch.int32, device=logits.device)
    if not samples:
        return tokens
    x = adjusted(logits, batch) if asked.adjusted else logits
    chunks = triton.cdiv(vocabulary, CHUNK)
    sizes = {"SIZE": CHUNK, "CHUNKS": chunks, "WIDE": triton.next_power_of_2(chunks)}
    temperature, top_p, min_p = (batch.array(name, torch.float32) for name in _FLOATS)
    settings = temperature, batch.array("top_k"), top_p, min_p
    found, drawn = torch.empty(2, samples, chunks, dtype=torch.int64, device=logits.device)
    best_of_chunk[samples, chunks](x, found, vocabulary, x.stride(0), SIZE=CHUNK)
    cuts = tally = found
    if asked.filtered:
        cuts, tally = find_cuts(x, found, settings, sizes)
    _draw[samples, chunks](
        x, found, tally, cuts, drawn, batch.memory, *settings, vocabulary, x.stride(0), samples,
        FILTERED=asked.filtered, **sizes, **EXACT,
    )  # fmt: skip
    _pick[(samples,)](found, drawn, tokens, *settings, vocabulary, CHUNKS=chunks, WIDE=sizes["WIDE"])
    return tokens


def _plain(logits: Tensor, batch: Batch, wanted: Rules | None = None) -> Tensor:
    return torch.from_numpy(rules.sample(logits.cpu().numpy(), batch.step)).to(logits.device)


def _trials(draw: Draw) -> Iterator[Trial]:
    """Rows with each rule alone and with all, ties among their logits, and rows that are bad."""
    generator = draw.generator
    for samples, vocabulary in ((6, 100), (3, 2100)):
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
