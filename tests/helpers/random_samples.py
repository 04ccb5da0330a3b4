"""Samples with every setting mixed with every other, and logits of all kinds."""

from __future__ import annotations

import numpy as np

from kernels.step import Step
from steps import sampling as batch


def random_batch(rng: np.random.Generator, n: int, vocabulary: int) -> Step:
    """Every setting mixed with every other, edge cases among them."""
    some = min(vocabulary, 6)

    def ids() -> list[int]:
        return rng.permutation(vocabulary)[: rng.integers(0, some + 1)].tolist()

    def pick(values: list[float]) -> np.ndarray:
        return rng.choice(np.array(values), n)

    penalized = rng.random(n) < 0.3
    biased = rng.random(n) < 0.3
    return batch(
        n,
        temperature=pick([0, 1e-38, 0.05, 0.3, 0.7, 1, 1, 1.5, 10, 1e9, 3e38]),
        top_k=pick([0, 0, 0, 1, 2, 3, 17, 64, 65, 100, 1024, vocabulary, 10**9]).astype(np.int32),
        top_p=pick([0, 1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 1, 1, 1]),
        min_p=pick([0, 0, 0, 1e-6, 0.01, 0.2, 0.99, 1]),
        repetition=pick([1, 0.5, 1.3, 100]),
        presence=pick([0, 0.5, -2, 100]),
        frequency=pick([0, 0.1, -1]),
        seeds=rng.integers(0, 2**64, n, dtype=np.uint64),
        draw_positions=rng.integers(0, 10_000, n),
        seen=[{i: int(rng.integers(0, 4)) for i in ids()} if on else {} for on in penalized],
        bias=[{i: float(rng.choice([-np.inf, 3, -2.5])) for i in ids()} if on else {} for on in biased],
        mask=random_mask(rng, n, vocabulary) if rng.random() < 0.5 else None,
    )


def random_mask(rng: np.random.Generator, n: int, vocabulary: int) -> np.ndarray:
    """Rows that allow few tokens, many, all; one that allows none."""
    allowed = rng.random((n, vocabulary)) < rng.choice([0.05, 0.5, 0.99, 1], (n, 1))
    allowed[rng.integers(n)] = False
    return allowed


def random_logits(rng: np.random.Generator, n: int, vocabulary: int) -> np.ndarray:
    """Flat, peaked and tied rows, some with forbidden tokens, a few broken ones."""
    logits = rng.normal(0, rng.choice([0.1, 1, 3, 8], (n, 1)), (n, vocabulary)).astype(np.float32)
    tied = rng.random(n) < 0.3
    logits[tied] = np.round(logits[tied])
    logits[rng.random((n, vocabulary)) < rng.choice([0, 0, 0, 0.3], (n, 1))] = -np.inf
    for row in np.flatnonzero(rng.random(n) < 0.03):
        logits[row, rng.integers(vocabulary)] = rng.choice([np.nan, np.inf])
    logits[rng.random(n) < 0.02] = -np.inf
    return logits
