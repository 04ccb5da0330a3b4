"""Mask, penalties and bias of samples: rules 1 to 3 of `kernels.sampling`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .arithmetic import EXACT
from .batch import (
    BIAS_IDS,
    BIAS_OFFSETS,
    BIAS_VALUES,
    MASK,
    MASK_WORDS,
    SEEN_COUNTS,
    SEEN_IDS,
    SEEN_OFFSETS,
    Batch,
)

SIZE = 1024
"""Tokens of a program."""

LISTED = 256
"""Tokens of a list that a program takes at a time."""

_MASK, _MASK_WORDS = map(tl.constexpr, (MASK, MASK_WORDS))
_SEEN_OFFSETS, _SEEN_IDS, _SEEN_COUNTS = map(tl.constexpr, (SEEN_OFFSETS, SEEN_IDS, SEEN_COUNTS))
_BIAS_OFFSETS, _BIAS_IDS, _BIAS_VALUES = map(tl.constexpr, (BIAS_OFFSETS, BIAS_IDS, BIAS_VALUES))


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


def adjusted(logits: Tensor, batch: Batch) -> Tensor:
    """Logits [samples, vocabulary] by these rules, in memory of their own."""
    samples, vocabulary = logits.shape
    x = torch.empty_like(logits, memory_format=torch.contiguous_format)
    grid = (samples, triton.cdiv(vocabulary, SIZE))
    _mask[grid](logits, x, batch.memory, vocabulary, logits.stride(0), SIZE=SIZE)
    penalties = [batch.array(name, torch.float32) for name in ("repetition", "presence", "frequency")]
    _penalize[(samples,)](x, batch.memory, *penalties, vocabulary, SIZE=LISTED, **EXACT)
    _bias[(samples,)](x, batch.memory, vocabulary, SIZE=LISTED, **EXACT)
    return x
