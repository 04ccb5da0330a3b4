"""Tokens of a row in order, by integers: the larger a logit the larger its key, whatever its sign."""

from __future__ import annotations

import triton
import triton.language as tl

IDS = tl.constexpr(0xFFFFFFFF)
NOTHING = tl.constexpr(-(1 << 63))


@triton.jit
def key_of(x):
    """Integers from 0 to 2^32 - 1 that are ordered as float32 values are; NaN is above all."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # -0 becomes +0
    bits = tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
    return bits.to(tl.int64) + 2147483648


@triton.jit
def value_of(key):
    """The float32 value of a key."""
    bits = (key - 2147483648).to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def ranked(score, token):
    """Integers that are ordered by score, of equal ones the lower token is the larger."""
    return (key_of(score) - 2147483648) * 4294967296 + (token.to(tl.int64) ^ IDS)


@triton.jit
def chunk_of(x, row, vocabulary, stride, SIZE: tl.constexpr):
    """Ids and logits of this program's chunk; -inf behind the last token."""
    token = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    return token, tl.load(x + row * stride + token, mask=token < vocabulary, other=float("-inf"))


@triton.jit
def best_of_chunk(x, found, vocabulary, stride, SIZE: tl.constexpr):
    """The best token of a chunk: its key, and the lower its id the larger the number below that."""
    row = tl.program_id(0).to(tl.int64)
    token, value = chunk_of(x, row, vocabulary, stride, SIZE)
    best = tl.max(tl.where(token < vocabulary, ranked(value, token), NOTHING), 0)
    tl.store(found + row * tl.num_programs(1) + tl.program_id(1), best)


@triton.jit
def row_best(found, row, CHUNKS: tl.constexpr, WIDE: tl.constexpr):
    """The best token of a row: its id, its key."""
    chunk = tl.arange(0, WIDE)
    best = tl.max(tl.load(found + row * CHUNKS + chunk, mask=chunk < CHUNKS, other=NOTHING), 0)
    return ((best & IDS) ^ IDS).to(tl.int32), (best >> 32) + 2147483648
