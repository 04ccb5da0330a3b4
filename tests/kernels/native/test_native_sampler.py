import numpy as np
import pytest

from kernels import sampling as rules
from kernels.program import Limits
from kernels.weights import Plain
from steps import changed, packed_mask, unsampled


def random_rules(rng, samples, vocabulary):
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
    mask = None
    if rng.random() < 0.5:  # rows with few and with many tokens, rows without a mask, one that forbids all
        mask = rng.random((samples, vocabulary)) < rng.choice([0.02, 0.3, 0.99, 1], (samples, 1))
        mask[rng.integers(samples)] = False
        mask = packed_mask(mask)
    bias = rng.standard_normal(bias_ids.size).astype(np.float32) * 5
    bias[rng.random(bias.size) < 0.2] = -np.inf
    return {
        "temperature": pick([0, 1e-6, 0.1, 0.7, 1, 1, 1, 1.5, 5, 1e9]),
        "top_k": rng.choice(np.array([0, 0, 0, 1, 2, 40, 64, 65, 300, 10**9], np.int32), samples),
        "top_p": pick([1, 1, 1, 0, 0.1, 0.5, 0.9, 0.95, 0.999]),
        "min_p": pick([0, 0, 0, 0.02, 0.1, 0.5, 1, 1e-9]),
        "repetition": pick([1, 1.1, 2, 0.5]),
        "presence": pick([0, 0.5, -1]),
        "frequency": pick([0, 0.1, -0.3]),
        "seeds": rng.integers(0, 2**64, samples, np.uint64),
        "draw_positions": rng.integers(0, 10000, samples),
        "seen_offsets": seen_offsets,
        "seen_ids": seen_ids,
        "seen_counts": rng.integers(0, 4, seen_ids.size).astype(np.int32),
        "bias_offsets": bias_offsets,
        "bias_ids": bias_ids,
        "bias_values": bias,
        "mask": mask,
    }


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
        return self.program.launch(changed(self.batch, **settings), logits=logits).result()


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
    greedy = helpers.batch([(list(range(samples)), 0, [0] * 64)])
    for _ in range(rounds):
        settings = random_rules(rng, samples, vocabulary)
        expected = rules.sample(logits, changed(greedy, **settings))
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
        settings = {"temperature": np.ones(2000), "seeds": np.arange(start, start + 2000)}
        tokens.append(sampler(settings).tokens)
    share = np.bincount(np.concatenate(tokens), minlength=4) / draws
    assert np.abs(share - probabilities).max() < 0.012


def test_no_sample_rows_no_tokens(native, helpers):
    logits = np.zeros((4, 8), np.float32)
    sampler = Sampler(native(), helpers, logits)
    step = unsampled(sampler.batch)
    output = sampler.program.launch(step, logits=True).result()
    assert output.tokens.shape == (0,)
    assert output.logits is not None
    assert output.logits.shape == (0, 8)


@pytest.mark.parametrize("settings", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}, {"temperature": 0}])
def test_a_mask_decides_before_everything_else(native, isas, helpers, settings):
    """What it forbids is never drawn, not even with the only finite logit, a bias or NaN; a row whose mask
    forbids all has no token, and the rows beside it are as they would be alone."""
    rng = np.random.default_rng(1)
    vocabulary = 1000
    logits = rng.normal(0, 2, (5, vocabulary)).astype(np.float32)
    logits[1, :500], logits[2, 7], logits[3, 600:] = np.nan, np.inf, -np.inf
    allowed = np.ones((5, vocabulary), bool)
    allowed[1, :500] = allowed[2, 7] = allowed[3, :600] = False
    allowed[4, 13:] = False
    some = {"temperature": np.ones(5), "seeds": np.arange(5), "draw_positions": np.arange(5)}
    some |= {name: np.full(5, value) for name, value in settings.items()}
    bias = {"bias_offsets": [0, 0, 0, 0, 0, 1], "bias_ids": [99], "bias_values": [1e30]}
    for isa in isas:
        sampler = Sampler(native(isa), helpers, logits)
        alone = sampler(some).tokens.tolist()
        assert alone[1:3] == [-1, -1]
        output = sampler(some | bias | {"mask": packed_mask(allowed)}, logits=True)
        assert output.tokens[0] == alone[0], isa
        assert output.tokens[1] >= 500, isa
        assert output.tokens[2] not in (-1, 7), isa
        assert output.tokens[3] == -1, isa
        assert 0 <= output.tokens[4] < 13, isa
        assert helpers.same_bits(output.logits.copy(), logits), "logits are given out as they were"
