"""Arithmetic of the native backend in numpy, bit for bit and slowly: what docs/numerics.md says, as code.

Every step is a single float32 or integer operation (a fused multiply-add is one) in the order that the C++
kernels keep, so one differing bit is an error on one side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import EXP_SHIFT, LOG2_E, exp32, tanh32
from ..arrays import Float32, Int32
from ..formats import FORMATS, GROUP, group_count
from ..interface import Routing
from ..weights import Canonical, Packed, dequantize

LANES = 16
SPAN = 256
"""Keys that share a softmax before spans are joined."""
EXP2_POLYNOMIAL = tuple(
    np.float32(float.fromhex(c))
    for c in ("0x1.5bda40p-10", "0x1.3ce8acp-7", "0x1.c6b6d8p-5", "0x1.ebf9c2p-3", "0x1.62e42ap-1", "1")
)
"""2^r for |r| <= 1/2, highest power first: a minimax fit with the constant 1, relative error 1e-7."""

_ZERO = np.float32(0)
_TINY = np.float32(2.0**-100)


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Rows in groups of 32 columns; a value is scale * integer, sums are those of a group's values.

    integers: int32 [rows, groups, 32], magnitude up to 127 in one plane, 32639 in two. scales, sums: float32
    [rows, groups]. halves: sums of the first and the last 16 columns, [rows, groups, 2].
    """

    integers: Int32
    scales: Float32
    sums: Float32
    halves: Float32


def integers_of(x: Float32, limit: int) -> tuple[Int32, Float32]:
    """Integers of magnitude up to limit, and a scale for each [..., n] of them: NaN if one isn't finite."""
    most = np.float32(limit)
    peak = np.abs(x).max(axis=-1)
    finite = np.isfinite(peak)
    tiny = finite & (peak < _TINY)
    with np.errstate(all="ignore"):
        inverse = np.where(finite & ~tiny, most / peak, _ZERO)
        scales = np.where(finite, np.where(tiny, _ZERO, peak / most), np.float32(np.nan))
        integers = np.where(finite[..., None], np.rint(x * inverse[..., None]), _ZERO).astype(np.int32)
    return integers, scales


def quantize_rows(x: Float32, planes: int) -> QuantizedRows:
    """Round each group of 32 columns to integers; with NaN or infinity in it all of a group becomes NaN."""
    groups = group_count(x.shape[1])
    padded = np.zeros((len(x), groups, GROUP), np.float32)
    padded.reshape(len(x), -1)[:, : x.shape[1]] = x
    integers, scales = integers_of(padded, 32639 if planes == 2 else 127)
    if planes == 2:
        high = (integers + 128) >> 8
        integers = high * 256 + np.maximum(integers - high * 256, -127)
    sums = scales * integers.sum(axis=2).astype(np.float32)
    halves = scales[..., None] * integers.reshape(*scales.shape, 2, -1).sum(axis=3).astype(np.float32)
    return QuantizedRows(integers, scales, sums, halves)


def product(x: Float32, weight: Canonical, planes: int) -> Float32:
    """Product x @ weight.T: quantized rows for a packed weight, float32 rows for a plain one."""
    if isinstance(weight, Packed):
        return _packed_product(quantize_rows(x, planes), weight)
    return _plain_product(x, dequantize(weight))


def _packed_product(rows: QuantizedRows, weight: Packed) -> Float32:
    integers, group = weight.integers().astype(np.float64), FORMATS[weight.format].group
    x = rows.integers.astype(np.float64)
    scales = weight.scales.astype(np.float32)
    minima = None if weight.minima is None else weight.minima.astype(np.float32)
    acc = np.zeros((len(rows.scales), weight.shape[0]), np.float32)

    def dot(g: int, columns: slice) -> Float32:
        # Below 2^53 float64 products and sums of integers are exact in any order.
        exact: Float32 = (x[:, g, columns] @ integers[:, g, columns].T).astype(np.float32)
        return exact

    # The first formats came without fused products, and keep their bits.
    plus = _rounded if weight.format in ("q4", "q8") else fma
    for g in range(integers.shape[1]):
        row_scales, run = rows.scales[:, g, None], g * GROUP // group
        if group >= GROUP:
            acc = plus(dot(g, slice(None)) * scales[:, run], row_scales, acc)
            if minima is not None:
                acc = plus(minima[:, run], rows.sums[:, g, None], acc)
        else:
            first = dot(g, slice(16)) * scales[:, run]
            both = plus(dot(g, slice(16, None)), scales[:, run + 1], first)
            acc = plus(both, row_scales, acc)
            if minima is not None:
                for half in range(2):
                    acc = plus(minima[:, run + half], rows.halves[:, g, half, None], acc)
    return acc if weight.factor == 1.0 else acc * np.float32(weight.factor)


def _rounded(a: Float32, b: Float32, c: Float32 | np.float32) -> Float32:
    result: Float32 = c + a * b
    return result


def _plain_product(x: Float32, matrix: Float32) -> Float32:
    acc = np.zeros((len(x), len(matrix)), np.float32)
    for k in range(x.shape[1]):
        acc += x[:, k, None] * matrix[:, k]
    return acc


def lane_sum(x: Float32) -> Float32:
    """Sum over the last axis: 16 lanes in order of columns, then halves upon halves."""
    whole = np.zeros((*x.shape[:-1], -(-x.shape[-1] // LANES) * LANES), np.float32)
    whole[..., : x.shape[-1]] = x
    lanes = np.zeros((*x.shape[:-1], LANES), np.float32)
    for start in range(0, whole.shape[-1], LANES):
        lanes += whole[..., start : start + LANES]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def route(
    logits: Float32, routing: Routing, preference: Float32 | None = None
) -> tuple[NDArray[np.intp], Float32]:
    """Experts of each row, from the first choice on, and their weights [rows, used]."""
    with np.errstate(invalid="ignore"):
        if routing.scores == "sigmoid":
            scores = np.float32(1) / (exp32(-logits) + np.float32(1))
        elif preference is not None:
            scores = exp32(logits - logits.max(axis=1, keepdims=True))
            scores = scores / lane_sum(scores)[:, None]
        else:
            chosen = _chosen(logits, routing.used)
            logits = logits - np.take_along_axis(logits, chosen[:, :1], axis=1)
            weights = exp32(np.take_along_axis(logits, chosen, axis=1))
            return chosen, weights / (
                lane_sum(exp32(logits))[:, None] if routing.weights == "all" else _sum(weights)
            )
        chosen = _chosen(scores if preference is None else scores + preference, routing.used)
        weights = np.take_along_axis(scores, chosen, axis=1)
        return chosen, weights if routing.weights == "all" else weights / _sum(weights)


def _chosen(keys: Float32, used: int) -> NDArray[np.intp]:
    keys = np.where(np.isnan(keys), np.float32(np.inf), keys)
    return np.argsort(-keys, axis=1, kind="stable")[:, :used]


def _sum(weights: Float32) -> Float32:
    """Of each row, from its first choice on."""
    total = weights[:, :1]
    for i in range(1, weights.shape[1]):
        total = total + weights[:, i : i + 1]
    return total


def fma(a: Float32, b: Float32, c: Float32 | np.float32) -> Float32:
    """IEEE 754 fusedMultiplyAdd: a * b + c, rounded once.

    The product is exact in float64. The sum is rounded to odd there (S. Boldo, G. Melquiond, "Emulation of a
    FMA and correctly rounded sums", 2008): as float64 has 29 more bits, the second rounding is then right.
    """
    with np.errstate(all="ignore"):
        product = a.astype(np.float64) * b
        total = np.asarray(product + c)
        taken = total - product
        error = (product - (total - taken)) + (c - taken)
        bits = total.view(np.int64)
        # An inexact even result is one step from the odd neighbour on the side where the exact sum lies.
        inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
        bits += np.where(inexact, np.where((error > 0) == (total > 0), 1, -1), 0)
        rounded: Float32 = total.astype(np.float32)
    return rounded


def exp2_32(x: Float32) -> Float32:
    """2^x for x <= 0 within 1.3 units in the last place; exactly 0 below -126.5, NaN stays NaN."""
    r = np.maximum(x, np.float32(-127))
    shifted = r + np.float32(EXP_SHIFT)
    r = r - (shifted - np.float32(EXP_SHIFT))
    result: Float32 = np.full_like(r, EXP2_POLYNOMIAL[0])
    for coefficient in EXP2_POLYNOMIAL[1:]:
        result = fma(r, result, coefficient)
    result *= (shifted.view(np.int32) << 23).view(np.float32)
    return result


class Held(NamedTuple):
    """Keys or values of a head: numbers [n, head_dim] and, for each row of them, a factor [n].

    The factors of keys come to bear on their scores, those of values on their weights.
    """

    numbers: Float32
    factors: Float32


@dataclass(slots=True)
class _Partial:
    """Softmax over some keys: maximum and sum [heads], weighted sum of values [heads, head_dim]."""

    maximum: Float32
    total: Float32
    values: Float32

    @classmethod
    def of_span(cls, scores: Float32, values: Held, low: int) -> _Partial:
        """Keys low to low + n of a span: scores [heads, n], values [n, head_dim]."""
        maximum = scores.max(axis=1)
        lanes = np.zeros((len(scores), SPAN), np.float32)
        seen = lanes[:, low : low + scores.shape[1]]
        seen[:] = exp2_32(scores - maximum[:, None])
        weights = seen * values.factors
        mixed = np.zeros((len(scores), values.numbers.shape[1]), np.float32)
        for key, value in enumerate(values.numbers):
            mixed = fma(weights[:, key, None], value, mixed)
        return cls(maximum, lane_sum(lanes), mixed)

    def join(self, span: _Partial) -> None:
        """The keys of a later span."""
        maximum = np.where(self.maximum > span.maximum, self.maximum, span.maximum)
        before, after = exp2_32(self.maximum - maximum), exp2_32(span.maximum - maximum)
        self.maximum = maximum
        self.total = self.total * before + span.total * after
        self.values = self.values * before[:, None] + span.values * after[:, None]

    def sink(self, scores: Float32) -> None:
        """A last score of each head, without a value."""
        maximum = np.where(self.maximum > scores, self.maximum, scores)
        before = exp2_32(self.maximum - maximum)
        self.maximum = maximum
        self.total = self.total * before + exp2_32(scores - maximum)
        self.values = self.values * before[:, None]


def attend(
    q: Float32,
    keys: Held,
    values: Held,
    first: int,
    scale: float,
    cap: float = 0.0,
    sinks: Float32 | None = None,
) -> Float32:
    """Attention of q [heads, head_dim] over keys and values [n, head_dim] at positions from first on.

    cap: of the scores, 0 for none. sinks: [heads], see `Operations.paged_attention`.
    """
    to_base_2 = np.float32(LOG2_E)
    q = q * (np.float32(scale) / np.float32(cap) if cap else np.float32(scale) * to_base_2)
    scores = np.zeros((len(q), len(keys.factors)), np.float32)
    for d in range(q.shape[1]):
        scores = fma(q[:, d, None], keys.numbers[:, d], scores)
    scores = scores * keys.factors
    if cap:
        scores = tanh32(scores, exp32) * (np.float32(cap) * to_base_2)
    result: _Partial | None = None
    end = first + len(keys.factors)
    for span in range(first // SPAN * SPAN, end, SPAN):
        low, high = max(span, first), min(span + SPAN, end)
        here = slice(low - first, high - first)
        part = _Partial.of_span(scores[:, here], Held(*(part[here] for part in values)), low - span)
        if result is None:
            result = part
        else:
            result.join(part)
    assert result is not None
    if sinks is not None:
        result.sink(sinks * to_base_2)
    return result.values * (np.float32(1) / result.total)[:, None]
