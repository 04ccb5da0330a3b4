from __future__ import annotations

import numpy as np
import pytest

from kernels import sampling
from kernels.noise import (
    gumbel,
    hash32,
    log32,
    row_keys,
    splitmix64,
    token_words,
)

ONES = 2**32 - 1
MASK64 = 2**64 - 1

PINNED_HASHES = [
    [1266235307, 2239633812, 1685864869, 1676487105],
    [3967848853, 2595820276, 2523679978, 1740282025],
]
PINNED_NOISE = [
    [1065787951, 1050426842, 1060257586, 1060378785],
    [3211927570, 1033538139, 1039695457, 1059562725],
]


def splitmix64_by_hand(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def hash_by_hand(seed: int, position: int, token: int) -> int:
    mixed = splitmix64_by_hand((splitmix64_by_hand(seed) + position) & MASK64)
    x = ((token ^ (token >> 16)) * 0x7FEB352D) & ONES
    x = ((x ^ (x >> 15)) * 0x846CA68B) & ONES
    x ^= x >> 16
    x = ((x ^ (mixed & ONES)) * 0x7FEB352D) & ONES
    x ^= x >> 15
    x = ((x ^ (mixed >> 32)) * 0x846CA68B) & ONES
    return x ^ (x >> 16)


def hashes(seeds: list[int], positions: list[int], vocabulary: int) -> np.ndarray:
    keys = row_keys(np.array(seeds, np.uint64), np.array(positions, np.int64))
    return hash32(keys[:, None], token_words(vocabulary))


def exact_gumbel(h: np.ndarray) -> np.ndarray:
    """In float64, of u as it is rounded to float32."""
    u = (h.astype(np.float32) + np.float32(0.5)) * np.float32(2**-32)
    return -np.log(-np.log1p(-np.minimum(u, np.float32(1 - 2**-24)).astype(np.float64)))


def test_splitmix64_is_the_published_generator():
    # The first outputs of SplitMix64 seeded with 0 add the same constant to the state each time.
    states = np.array([0, 0x9E3779B97F4A7C15, 0x3C6EF372FE94F82A], np.uint64)
    assert [hex(x) for x in splitmix64(states)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_hash_equals_a_calculation_with_plain_integers():
    rng = np.random.default_rng(1)
    seeds = [0, 1, MASK64, *rng.integers(0, 2**63, 20).tolist()]
    positions = [0, 1, 2**31, *rng.integers(0, 2**40, 20).tolist()]
    found = hashes(seeds, positions, 300)
    expected = [[hash_by_hand(s, p, t) for t in range(300)] for s, p in zip(seeds, positions, strict=True)]
    assert found.tolist() == expected


def test_bits_stay_as_they_are():
    # A seed in use gives its text for good: these bits may never change.
    h = hashes([0, 12345], [0, 678], 4)
    assert h.tolist() == PINNED_HASHES
    assert gumbel(h).view(np.uint32).tolist() == PINNED_NOISE


@pytest.mark.parametrize(
    ("low", "high"), [(-80.0, 80.0), (-23.0, 3.0), (-1e-3, 1e-3), (-0.4, 0.4), (-1e-6, 1e-6)]
)
def test_log32_keeps_its_relative_precision(low: float, high: float):
    rng = np.random.default_rng(2)
    x = np.exp(rng.uniform(low, high, 1_000_000)).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    assert np.all(np.abs(log32(x) - exact) <= 5e-7 * np.abs(exact))
    assert log32(np.float32([1.0])) == 0


def test_noise_of_the_extreme_hashes_is_finite_and_right():
    h = np.array([0, 1, ONES - 1, ONES], np.uint32)
    noise = gumbel(h)
    assert np.all(np.isfinite(noise))
    assert noise.max() == pytest.approx(-np.log(0.5 * 2.0**-32), abs=3e-6)
    assert noise.min() == pytest.approx(-np.log(24 * np.log(2)), abs=3e-6)  # u is at most 1 - 2^-24
    assert noise.max() - noise.min() < sampling._NOISE_SPAN - 0.1


def test_noise_is_finite_and_precise_over_many_hashes():
    edge = np.arange(1 << 20, dtype=np.uint32)
    powers = (2.0 ** np.random.default_rng(3).uniform(0, 32, 1 << 20)).astype(np.int64).astype(np.uint32)
    for h in (edge, ONES - edge, powers):
        noise = gumbel(h)
        assert np.all(np.isfinite(noise))
        assert np.max(np.abs(noise - exact_gumbel(h))) < 3e-6


@pytest.mark.slow
def test_fifty_million_draws_are_finite_with_the_mean_and_variance_of_gumbel():
    rng = np.random.default_rng(4)
    count, total, squares = 0, 0.0, 0.0
    for _ in range(500):
        noise = gumbel(rng.integers(0, 2**32, 100_000, dtype=np.uint32))
        assert np.all(np.isfinite(noise))
        count += noise.size
        total += noise.sum(dtype=np.float64)
        squares += np.square(noise, dtype=np.float64).sum()
    mean = total / count
    assert count == 50_000_000
    assert mean == pytest.approx(np.euler_gamma, abs=1e-3)  # five standard errors
    assert squares / count - mean**2 == pytest.approx(np.pi**2 / 6, abs=3e-3)


def test_noise_falls_as_the_hash_grows():
    h = np.sort(np.random.default_rng(5).integers(0, 2**32, 1_000_000, dtype=np.uint32))
    assert np.max(np.diff(gumbel(h))) < 4e-6


def test_keys_and_words_do_not_repeat():
    seeds, positions = np.divmod(np.arange(200_000), 1000)
    keys = row_keys(seeds.astype(np.uint64), positions)
    assert len(np.unique(keys.view(np.uint64))) == 200_000
    assert len(np.unique(token_words(262_144))) == 262_144


def test_each_input_bit_flips_half_of_the_output_bits():
    rng = np.random.default_rng(7)
    n = 4000
    seeds, positions = rng.integers(0, 2**64, n, dtype=np.uint64), rng.integers(0, 2**20, n)
    tokens = rng.integers(0, 2**17, n)

    def one(seeds: np.ndarray, positions: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        return hash32(row_keys(seeds, positions), token_words(2**17)[tokens])

    base = one(seeds, positions, tokens)
    flipped = [one(seeds ^ np.uint64(1 << bit), positions, tokens) for bit in range(64)]
    flipped += [one(seeds, positions ^ (1 << bit), tokens) for bit in range(20)]
    flipped += [one(seeds, positions, tokens ^ (1 << bit)) for bit in range(17)]
    for other in flipped:
        bits = np.unpackbits((base ^ other).view(np.uint8).reshape(n, 4), axis=1)
        assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 5 * 0.5 / np.sqrt(n))


def test_neighbouring_seeds_positions_and_tokens_are_uncorrelated():
    n, vocabulary = 500, 400
    base = gumbel(hashes([11] * n, list(range(n)), vocabulary))
    tolerance = 5 / np.sqrt(n * vocabulary)
    seeds = gumbel(hashes([12] * n, list(range(n)), vocabulary))
    for a, b in (
        (base, seeds),
        (base[:-1], base[1:]),
        (base[:, :-1], base[:, 1:]),
        (base[1:, :-1], base[:-1, 1:]),
    ):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < tolerance


@pytest.mark.slow
def test_draws_follow_the_softmax():
    # 30,000 positions of one seed over 1,000 ids; chi-square has a mean of 999 and a deviation of 44.7.
    logits = np.random.default_rng(8).normal(0, 1, 1000).astype(np.float32)
    draws = 30_000
    counts = np.zeros(1000)
    for start in range(0, draws, 1000):
        noise = gumbel(hashes([2024] * 1000, list(range(start, start + 1000)), 1000))
        counts += np.bincount((logits + noise).argmax(axis=1), minlength=1000)
    expected = np.exp(logits.astype(np.float64))
    expected *= draws / expected.sum()
    chi_square = np.sum((counts - expected) ** 2 / expected)
    assert 999 - 4 * 44.7 < chi_square < 999 + 4 * 44.7
