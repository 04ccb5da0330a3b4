"""Rotary position embedding: frequencies of each kind of scaling, tables of their cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernels.arithmetic import cosine_sine
from kernels.arrays import Float32

from .spec import ModelSpec, RopeSpec

Float64 = NDArray[np.float64]

_BLOCK = 256  # positions whose rotations are made from those of the first block
_STRETCH = 4 * _BLOCK  # positions that are made at a time
_BITS = 128  # after the point, of powers as integers


def _root(x: float, degree: int) -> int:
    """The root of x > 1 in units of 2^-_BITS, rounded down: Newton's method on integers, from above."""
    numerator, denominator = x.as_integer_ratio()
    power = (numerator << _BITS * degree) // denominator
    root = int(x ** (1 / degree) * (1 + 2**-40) * 2**64) << (_BITS - 64)
    while (better := ((degree - 1) * root + power // root ** (degree - 1)) // degree) < root:
        root = better
    return root


def _plain(rope: RopeSpec, head_dim: int) -> Float64:
    """base^(-2 i / head_dim) for each pair i of columns (arXiv 2104.09864), rounded once.

    A power of floats has other last bits on other processors; the angle of a late position shows them.
    """
    pairs = head_dim // 2
    root, powers = _root(float(rope.base), pairs), [1 << _BITS]
    while len(powers) < pairs:
        powers.append((powers[-1] << _BITS) // root)
    return np.array([power / (1 << _BITS) for power in powers])


def _linear(rope: RopeSpec, head_dim: int) -> Float64:
    """Position interpolation (arXiv 2306.15595)."""
    return _plain(rope, head_dim) / rope.factor


def _llama3(rope: RopeSpec, head_dim: int) -> Float64:
    """Llama 3.1: long waves are stretched, short ones kept, those between the two band edges blended."""
    plain = _plain(rope, head_dim)
    turns = rope.original_context * plain / (2 * math.pi)  # of each wave within the original context
    kept = np.clip((turns - rope.low_factor) / (rope.high_factor - rope.low_factor), 0, 1)
    return plain * (kept + (1 - kept) / rope.factor)


def _yarn(rope: RopeSpec, head_dim: int) -> Float64:
    """YaRN, "NTK by parts" (arXiv 2309.00071, section 3.2)."""

    def dimension(turns: float) -> float:
        wavelength = rope.original_context / (2 * math.pi * turns)
        return head_dim * math.log(wavelength) / (2 * math.log(rope.base))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncated:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    stretched: Float64 = np.clip((np.arange(head_dim // 2) - low) / max(high - low, 0.001), 0, 1)
    plain = _plain(rope, head_dim)
    return plain * (1 - stretched + stretched / rope.factor)


def _factors(rope: RopeSpec, head_dim: int) -> Float64:
    """Each frequency divided by a number of its own, as GGUF files store the result of another scaling."""
    return _plain(rope, head_dim) / np.asarray(rope.factors, np.float64)


_KINDS: dict[str, Callable[[RopeSpec, int], Float64]] = {
    "none": _plain,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "factors": _factors,
}


def frequencies(rope: RopeSpec, head_dim: int) -> Float64:
    """Radians a pair of columns turns by at each position, [head_dim / 2]. ValueError: unknown scaling."""
    if rope.scaling not in _KINDS:
        raise ValueError(f"unknown kind of rope scaling {rope.scaling!r}")
    return _KINDS[rope.scaling](rope, head_dim)


def attention_factor(rope: RopeSpec) -> float:
    """What rotated queries and keys are multiplied by. YaRN has its own: arXiv 2309.00071, section 3.4."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    return yarn_growth(rope.factor) if rope.scaling == "yarn" else 1.0


def yarn_growth(factor: float, weight: float = 1.0) -> float:
    """What queries and keys grow by in a context stretched `factor` times; DeepSeek weighs it (`mscale`)."""
    return weight * (0.1 * math.log(max(factor, 1.0))) + 1.0


def _temperatures(rope: RopeSpec, start: int, end: int) -> Float64:
    """What queries at these positions are multiplied by, [positions, 1]."""
    steps, which = np.unique(np.arange(start, end) // rope.original_context, return_inverse=True)
    return np.array([1 + rope.temperature * math.log1p(step) for step in steps.tolist()])[which, None]


class RotationTables:
    """Cosines and sines of the angles of each position, times `attention_factor`; made as far as `reach` was
    called.

    cos, sin: float32 [positions, head_dim / 2], computed in float64. What was not reached yet takes no
    memory: a model may declare a million positions, and a conversation uses a thousand of them.
    """

    def __init__(self, rope: RopeSpec, head_dim: int, positions: int) -> None:
        self.cos = np.empty((positions, head_dim // 2), np.float32)
        self.sin = np.empty_like(self.cos)
        self._rope = rope
        self._turn = frequencies(rope, head_dim)
        self._reached = 0
        first = np.arange(min(_BLOCK, positions))
        self._first = [table * attention_factor(rope) for table in cosine_sine(np.outer(first, self._turn))]

    def reach(self, positions: int) -> None:
        """Make the tables for positions 0 to positions - 1 at least."""
        if positions <= self._reached:
            return
        # Turning by p + q is turning by p, then by q: a product of complex numbers instead of a cosine and a
        # sine for each entry, which would cost 20 ms at 8,192 positions. The error stays near 2^-52. They are
        # not numpy's complex numbers, whose products are fused on some processors.
        end = min(-(-positions // _STRETCH) * _STRETCH, len(self.cos))
        starts = range(self._reached, end, _BLOCK)
        cos, sin = self._first
        for start, c, s in zip(starts, *cosine_sine(np.outer(starts, self._turn)), strict=True):
            stop = min(start + _BLOCK, end)
            rows = stop - start
            of_cos, of_sin = cos[:rows] * c - sin[:rows] * s, sin[:rows] * c + cos[:rows] * s
            if self._rope.temperature:
                factors = _temperatures(self._rope, start, stop)
                of_cos, of_sin = of_cos * factors, of_sin * factors
            self.cos[start:stop], self.sin[start:stop] = of_cos, of_sin
        self._reached = end


class Rotations:
    """The tables of a model's rotations at its context length, one for each kind that its layers have."""

    def __init__(self, spec: ModelSpec, positions: int) -> None:
        self.tables = {
            turning: RotationTables(turning.rope.within(spec.context_length), turning.columns, positions)
            for turning in spec.turnings
        }

    def reach(self, positions: int) -> None:
        """Make them for positions 0 to positions - 1 at least."""
        for tables in self.tables.values():
            tables.reach(positions)


def rotation_tables(rope: RopeSpec, head_dim: int, positions: int) -> tuple[Float32, Float32]:
    """Both tables of positions 0 to positions - 1."""
    tables = RotationTables(rope, head_dim, positions)
    tables.reach(positions)
    return tables.cos, tables.sin
