import dataclasses

import numpy as np
import pytest

from kernels import sampling as rules
from kernels.interface import Limits
from kernels.weights import Plain


def random_rules(rng, greedy, samples, vocabulary):
    """Settings of every kind, edge cases among them; a third of the rows have penalties, as many a bias."""

    def pick(values):
        return rng.choice(np.array(values, np.float32), samples)

    def lists(share):
        counts = np.where(rng.random(samples) < share, rng.integers(0, min(vocabulary, 200), samples), 0)
        ids = [rng.choice(vocabulary, n, replace=False) for n in counts]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), np.concatenate([*ids, []]).astype(
            np.int32
        )

    seen_offsets, seen_ids = lists(0.3)
    bias_offsets, bias_ids = lists(0.3)
    bias = rng.standard_normal(bias_ids.size).astype(np.float32) * 5
    bias[rng.random(bias.size) < 0.2] = -np.inf
    return dataclasses.replace(
        greedy(samples),
        temperature=pick([0, 1e-6, 0.1, 0.7, 1, 1, 1, 1.5, 5, 1e9]),
        top_k=rng.choice(np.array([0, 0, 0, 1, 2, 40, 64, 65, 300, 10**9], np.int32), samples),
        top_p=pick([1, 1, 1, 0, 0.1, 0.5, 0.9, 0.95, 0.999]),
        min_p=pick([0, 0, 0, 0.02, 0.1, 0.5, 1, 1e-9]),
        repetition=pick([1, 1.1, 2, 0.5]),
        presence=pick([0, 0.5, -1]),
        frequency=pick([0, 0.1, -0.3]),
        seeds=rng.integers(0, 2**64, samples, np.uint64),
        positions=rng.integers(0, 10000, samples),
        seen_offsets=seen_offsets,
        seen_ids=seen_ids,
        seen_counts=rng.integers(0, 4, seen_ids.size).astype(np.int32),
        bias_offsets=bias_offsets,
        bias_ids=bias_ids,
        bias_values=bias,
    )


def random_logits(rng, samples, vocabulary):
    """Flat and peaked rows, rows with many equal scores, forbidden tokens, and a few broken rows."""
    logits = rng.standard_normal((samples, vocabulary)) * rng.choice([0.1, 1, 3, 10], (samples, 1))
    coarse = rng.random(samples) < 0.3
    logits[coarse] = np.round(logits[coarse])
    logits[rng.random(logits.shape) < 0.05] = -np.inf
    logits = logits.astype(np.float32)
    for row, value in ((1, np.nan), (2, np.inf)):
        logits[row % samples, rng.integers(vocabulary)] = value
    logits[3 % samples] = -np.inf
    return logits


class Sampler:
    """A program that does nothing but sample given logits."""

    def __init__(self, backend, helpers, logits):
        samples, self.vocabulary = logits.shape
        self.table = np.array(logits)
        placed = backend.place_matrix(Plain(self.table, "f32"))

        def forward(ops, inputs):
            return ops.sample(
                ops.gather(ops.embedding(placed, inputs.tokens), inputs.sample_rows), inputs.sampling
            )

        self.program = backend.capture(forward, Limits(samples, samples, 1, 64))
        self.batch = helpers.batch([(list(range(samples)), 0, [0] * 64)])

    def __call__(self, settings, *, logits=False):
        return self.program.run(dataclasses.replace(self.batch, sampling=settings), logits=logits)


@pytest.mark.parametrize(
    ("vocabulary", "rounds"), [(1, 2), (7, 10), (64, 20), (1000, 10), (5001, 5), (49152, 2)]
)
def test_the_same_tokens_as_the_specification(native, isas, helpers, vocabulary, rounds):
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    rng = np.random.default_rng(seed)
    samples = 60
    logits = random_logits(rng, samples, vocabulary)
    samplers = {isa: Sampler(native(isa), helpers, logits) for isa in isas}
    for _ in range(rounds):
        settings = random_rules(rng, helpers.greedy, samples, vocabulary)
        expected = rules.sample(logits, settings)
        for isa, sampler in samplers.items():
            output = sampler(settings, logits=True)
            assert np.array_equal(output.tokens, expected), (
                isa,
                seed,
                np.flatnonzero(output.tokens != expected),
            )
            assert helpers.same_bits(output.logits.copy(), logits), "logits are given out as they were"


def test_draws_follow_the_probabilities(native, helpers):
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    draws = 20000
    logits = np.tile(np.log(probabilities).astype(np.float32), (draws, 1))
    sampler = Sampler(native(), helpers, logits[:2000])
    tokens = []
    for start in range(0, draws, 2000):
        settings = dataclasses.replace(
            helpers.greedy(2000),
            temperature=np.ones(2000, np.float32),
            seeds=np.arange(start, start + 2000, dtype=np.uint64),
        )
        tokens.append(sampler(settings).tokens)
    share = np.bincount(np.concatenate(tokens), minlength=4) / draws
    assert np.abs(share - probabilities).max() < 0.012


def test_no_sample_rows_no_tokens(native, helpers):
    logits = np.zeros((4, 8), np.float32)
    sampler = Sampler(native(), helpers, logits)
    batch = dataclasses.replace(sampler.batch, sample_rows=np.zeros(0, np.int32), sampling=helpers.greedy(0))
    output = sampler.program.run(batch, logits=True)
    assert output.tokens.shape == (0,)
    assert output.logits is not None
    assert output.logits.shape == (0, 8)
