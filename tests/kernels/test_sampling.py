from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from kernels import sampling
from kernels.arithmetic import exp32
from kernels.noise import gumbel, hash32, row_keys, token_words
from kernels.sampling import process, sample
from kernels.step import ARRAYS, Step
from random_samples import random_batch, random_logits, random_mask
from steps import changed
from steps import sampling as batch


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def one_row(whole: Step, row: int) -> Step:
    """Row `row` of a batch as a batch of its own."""
    ragged_names = {"seen": ("ids", "counts"), "bias": ("ids", "values")}
    parts = {}
    for name, _, (count, *_) in ARRAYS:
        values = getattr(whole, name)
        if count == "samples":
            parts[name] = values[row : row + 1]
        elif count == "samples + 1":
            start, end = values[row : row + 2]
            kind = name.removesuffix("_offsets")
            parts[name] = np.array([0, end - start])
            for other in ragged_names[kind]:
                parts[f"{kind}_{other}"] = getattr(whole, f"{kind}_{other}")[start:end]
    return Step.of(**parts)


def by_the_book(logits: np.ndarray, rules: Step) -> tuple[list[int], list[set[int]]]:
    """The specification of kernels/sampling.py, one row and one token at a time, everything sorted.

    Returns the tokens, and which tokens were left to draw from (none for a bad row).
    """
    tokens, left = [], []
    for row in range(len(logits)):
        rule = one_row(rules, row)
        x = logits[row].copy()
        for token in range(len(x)):
            if rule.mask.size and not int(rule.mask[0, token // 32]) >> token % 32 & 1:
                x[token] = -np.inf
        with np.errstate(all="ignore"):
            for token, count in zip(rule.seen_ids, rule.seen_counts, strict=True):
                r = rule.repetition[0]
                x[token] = x[token] / r if x[token] > 0 else x[token] * r
                if count > 0:
                    x[token] -= rule.presence[0]
                x[token] -= rule.frequency[0] * np.float32(count)
            for token, value in zip(rule.bias_ids, rule.bias_values, strict=True):
                x[token] += value
        best = x.max()
        if math.isnan(best) or math.isinf(best):
            tokens.append(-1)
            left.append(set())
            continue
        greedy = rule.temperature[0] < np.float32(1e-5)
        with np.errstate(over="ignore"):
            z = (x - best) / (np.float32(1) if greedy else rule.temperature[0])
        order = sorted((i for i in range(len(x)) if x[i] != -np.inf), key=lambda i: (-float(x[i]), i))
        if 0 < rule.top_k[0] < len(x):
            order = order[: rule.top_k[0]]
        w = exp32(z)
        m = [int(float(value) * 2**40) for value in w]
        total = float(sum(m[i] for i in order))
        kept, mass = [], 0
        for i in order:
            if rule.top_p[0] < 1 and mass >= float(rule.top_p[0]) * total and kept:
                break
            if w[i] < rule.min_p[0] or (rule.min_p[0] >= 1 and kept):
                break
            kept.append(i)
            mass += m[i]
        keys = row_keys(rule.seeds, rule.draw_positions)
        score = z + gumbel(hash32(keys, token_words(len(x))))
        tokens.append(order[0] if greedy else max(kept, key=lambda i: (float(score[i]), -i)))
        left.append(set(kept))
    return tokens, left


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("vocabulary", [1, 2, 7, 90, 400])
def test_every_mix_of_settings_equals_the_specification(vocabulary: int, seed: int):
    rng = np.random.default_rng([seed, vocabulary])
    n = 60
    logits, rules = random_logits(rng, n, vocabulary), random_batch(rng, n, vocabulary)
    tokens, left = by_the_book(logits, rules)
    assert sample(logits, rules).tolist() == tokens
    kept = np.isfinite(process(logits, rules))
    for row in range(n):
        if tokens[row] >= 0:
            assert set(np.flatnonzero(kept[row]).tolist()) == left[row]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("vocabulary", [9_000, 20_011])
def test_large_vocabularies_equal_the_specification(vocabulary: int, seed: int):
    rng = np.random.default_rng([seed, vocabulary])
    n = 24
    logits, rules = random_logits(rng, n, vocabulary), random_batch(rng, n, vocabulary)
    assert sample(logits, rules).tolist() == by_the_book(logits, rules)[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_draws_from_a_whole_large_vocabulary_equal_the_specification(seed: int):
    rng = np.random.default_rng(seed)
    n, vocabulary = 16, 20_011
    logits = random_logits(rng, n, vocabulary)
    rules = batch(n, temperature=rng.choice([0.1, 0.7, 1, 3, 1e9], n), seeds=seed)
    assert sample(logits, rules).tolist() == by_the_book(logits, rules)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("vocabulary", "n", "rounds"), [(300, 64, 30), (9_000, 32, 6)])
def test_a_row_does_not_depend_on_its_batch(vocabulary: int, n: int, rounds: int):
    rng = np.random.default_rng(vocabulary)
    for _ in range(rounds):
        logits, rules = random_logits(rng, n, vocabulary), random_batch(rng, n, vocabulary)
        alone = [int(sample(logits[row : row + 1], one_row(rules, row))[0]) for row in range(n)]
        assert sample(logits, rules).tolist() == alone


def test_a_nucleus_that_ends_between_two_equal_tokens():
    # 2,000 equal tokens, and top_p at the edge between two of them: only the exact sum can tell.
    scores = np.zeros((40, 2000), np.float32)
    edge = np.float32(0.25) + np.arange(-20, 20) * np.spacing(np.float32(0.25))
    expected = [500 + (float(p) > 0.25) for p in edge]
    assert np.isfinite(process(scores, batch(40, top_p=edge))).sum(axis=1).tolist() == expected


LOGITS = np.log(np.array([[0.5, 0.3, 0.15, 0.05]])).astype(np.float32)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"top_p": 0.75}, 2),
        ({"min_p": 0.2}, 3),
        ({"top_p": 0.49}, 1),
        ({"top_p": 0.51}, 2),
        ({"top_p": 0.96}, 4),
        ({"top_p": 0}, 1),
        ({"top_p": 1}, 4),
        ({"top_k": 1}, 1),
        ({"top_k": 3}, 3),
        ({"top_k": 10**9}, 4),
        ({"min_p": 0}, 4),
        ({"min_p": 1}, 1),
        ({"min_p": 0.05}, 4),
        ({"top_k": 2, "top_p": 0.6}, 1),  # 0.5 is 0.625 of what top_k left
        ({"top_k": 3, "top_p": 0.9, "min_p": 0.5}, 2),
    ],
)
def test_B055_how_many_tokens_are_kept(settings: dict[str, float], kept: int):
    result = process(LOGITS, batch(1, **settings))
    assert np.isfinite(result[0]).tolist() == [i < kept for i in range(4)]
    assert result[0, :kept].tolist() == LOGITS[0, :kept].tolist()
    tokens = sample(np.repeat(LOGITS, 200, axis=0), batch(200, **settings))
    assert set(tokens.tolist()) == set(range(kept))


@pytest.mark.parametrize("settings", [{"top_p": 0}, {"top_k": 1}, {"min_p": 1}, {"temperature": 0}])
@pytest.mark.parametrize("vocabulary", [50, 9_000])
def test_B055_settings_that_leave_one_token_are_greedy(settings: dict[str, float], vocabulary: int):
    rng = np.random.default_rng(5)
    logits = np.round(rng.normal(0, 2, (100, vocabulary))).astype(np.float32)  # the best is hardly ever alone
    assert sample(logits, batch(100, **settings)).tolist() == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("vocabulary", [50, 9_000])
def test_B055_settings_that_are_off_change_nothing(vocabulary: int):
    logits = np.random.default_rng(6).normal(0, 2, (100, vocabulary)).astype(np.float32)
    plain = sample(logits, batch(100)).tolist()
    for off in ({"top_p": 1}, {"top_k": 0}, {"top_k": vocabulary}, {"top_k": 10**9}, {"min_p": 0}):
        assert sample(logits, batch(100, **off)).tolist() == plain
    assert plain != logits.argmax(axis=1).tolist()


def test_top_k_keeps_exactly_k_of_equal_tokens_the_lowest_ids():
    for vocabulary in (10, 9_000):
        result = process(np.zeros((1, vocabulary), np.float32), batch(1, top_k=4))
        assert np.flatnonzero(np.isfinite(result[0])).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("temperature", [0, 1e-45, 1e-38, 1e-6])
def test_B053_the_smallest_temperatures_are_greedy(temperature: float):
    logits = np.array([[1, 3, 3, 2], [-1e38, -3e38, -2e38, -3e38]], np.float32)
    assert sample(logits, batch(2, temperature=temperature)).tolist() == [1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1e9, 3.4e38])
def test_B053_a_huge_temperature_draws_uniformly(temperature: float):
    logits = np.random.default_rng(7).normal(0, 5, (1, 8)).astype(np.float32)
    logits[0, 2] = -np.inf
    tokens = sample(np.repeat(logits, 7000, axis=0), batch(7000, temperature=temperature))
    counts = np.bincount(tokens, minlength=8)
    assert counts[2] == 0
    assert np.sum((counts[counts > 0] - 1000) ** 2 / 1000) < 30  # chi-square of six degrees of freedom


def test_B057_repetition_penalty_divides_positive_and_multiplies_negative_logits():
    logits = np.array([[2.0, -1.0, 0.5, -3.0]], np.float32)
    for counts in ({0: 0, 1: 1}, {0: 5, 1: 0}):  # seen in the prompt or often: once is once
        result = process(logits, batch(1, repetition=2, seen=[counts]))
        assert result.tolist() == [[1.0, -2.0, 0.5, -3.0]]
    assert process(logits, batch(1, repetition=1, seen=[{0: 5, 1: 0}])).tolist() == logits.tolist()


def test_presence_counts_once_frequency_every_time_and_the_prompt_not_at_all():
    logits = np.array([[2.0, -1.0, 0.5, 4.0]], np.float32)
    rules = batch(1, presence=0.5, frequency=0.25, seen=[{0: 1, 1: 3, 2: 0}])
    assert process(logits, rules).tolist() == [[1.25, -2.25, 0.5, 4.0]]


def test_order_of_the_rules():
    # Penalty before bias before temperature; the best token is what is best after them.
    logits = np.array([[4.0, 3.0, -1.0, 0.0]], np.float32)
    rules = batch(1, repetition=2, seen=[{0: 1}], bias=[{0: 0.5, 2: -np.inf}], temperature=0.5, top_k=2)
    assert process(logits, rules).tolist() == [[5.0, 6.0, -np.inf, -np.inf]]
    assert sample(logits, changed(rules, temperature=[0])).tolist() == [1]


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0}, {}, {"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 5, "top_p": 0.5}],
)
@pytest.mark.parametrize("vocabulary", [20, 9_000])
def test_bad_rows_are_reported_and_spoil_no_other(settings: dict[str, float], vocabulary: int):
    logits = np.random.default_rng(8).normal(0, 2, (6, vocabulary)).astype(np.float32)
    good = sample(logits, batch(6, **settings))
    logits[1, 3] = np.nan
    logits[2] = -np.inf
    logits[3, -1] = np.inf
    logits[4] = np.nan
    assert sample(logits, batch(6, **settings)).tolist() == [good[0], -1, -1, -1, -1, good[5]]
    process(logits, batch(6, **settings))
    every = [dict.fromkeys(range(vocabulary), -np.inf), *[{}] * 5]
    assert sample(logits, batch(6, bias=every, **settings))[0] == -1


def test_one_allowed_token_is_always_drawn():
    logits = np.random.default_rng(9).normal(0, 2, (50, 9_000)).astype(np.float32)
    allowed = np.arange(50) * 7
    forced = np.full_like(logits, -np.inf)
    forced[np.arange(50), allowed] = -1e30
    for settings in ({}, {"temperature": 1e9}, {"top_p": 0.5}, {"top_k": 40}, {"temperature": 0}):
        assert sample(forced, batch(50, **settings)).tolist() == allowed.tolist()


def test_the_order_is_score_then_id():
    rng = np.random.default_rng(13)
    largest = np.finfo(np.float32).max
    values = [*rng.normal(0, 3, 20), 0.0, -0.0, largest, -largest, 1e-45, -1e-45, -np.inf]
    for size in (1, 2, 50, 9_000):
        x = rng.choice(np.array(values, np.float32), (3, size))
        x[:, -1] = values[0]  # a row that is not bad
        for row in range(3):
            allowed = [i for i in range(size) if x[row, i] > -np.inf]
            expected = sorted(allowed, key=lambda i: (-float(x[row, i]), i))
            with np.errstate(over="ignore"):
                assert sampling._left(x[row], batch(3, top_k=10**9), row).tolist() == expected


def test_a_mask_comes_before_everything_else():
    logits = np.array([[np.nan, 5, 1, 0], [np.inf, 5, 1, 0], [1, 2, 3, 4], [1, 2, 3, 4]], np.float32)
    allowed = np.array([[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    rules = batch(4, temperature=0, bias=[{}, {1: 100.0}, {0: 100.0}, {}], mask=allowed)
    assert sample(logits, rules).tolist() == [1, 2, -1, 3]
    left = process(logits, batch(4, bias=[{}, {1: 100.0}, {0: 100.0}, {}], mask=allowed))
    assert left[0].tolist() == [-np.inf, 5, 1, 0]
    assert left[1].tolist() == [-np.inf, -np.inf, 1, 0]
    assert left[3].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("settings", [{}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2}, {"temperature": 0}])
def test_a_row_without_a_mask_is_as_it_would_be_alone(settings: dict[str, float]):
    rng = np.random.default_rng(14)
    logits, allowed = rng.normal(0, 2, (30, 900)).astype(np.float32), np.ones((30, 900), bool)
    allowed[::2] = random_mask(rng, 15, 900)
    tokens = sample(logits, batch(30, mask=allowed, **settings))
    assert tokens[1::2].tolist() == sample(logits, batch(30, **settings))[1::2].tolist()
    masked = np.where(allowed, logits, np.float32(-np.inf))
    assert tokens.tolist() == sample(masked, batch(30, **settings)).tolist()


def test_logits_are_left_as_they_are():
    logits = np.random.default_rng(10).normal(0, 2, (4, 9_000)).astype(np.float32)
    before = logits.copy()
    logits.flags.writeable = False
    rules = batch(
        4,
        temperature=[0, 1, 1, 1],
        top_p=[1, 1, 0.9, 1],
        repetition=2,
        seen=[{1: 1}] * 4,
        bias=[{2: -np.inf}, {}, {}, {}],
    )
    sample(logits, rules)
    process(logits, rules)
    sample(logits, batch(4))
    assert np.array_equal(logits, before)


def test_no_rows_give_no_tokens():
    assert sample(np.zeros((0, 100), np.float32), batch(0)).tolist() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.5}, {"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.05}, {"top_p": 0.999}]
)
def test_draws_follow_the_distribution_left_by_the_rules(settings: dict[str, float]):
    logits = np.random.default_rng(11).normal(0, 1.5, (1, 60)).astype(np.float32)
    draws = 20_000
    left = process(logits, batch(1, **settings))[0].astype(np.float64)
    expected = draws * np.exp(left) / np.exp(left).sum()
    tokens = sample(np.repeat(logits, draws, axis=0), batch(draws, seeds=99, **settings))
    counts = np.bincount(tokens, minlength=60)
    assert np.all(counts[expected == 0] == 0)
    degrees = np.count_nonzero(expected) - 1
    chi_square = np.sum((counts - expected)[expected > 0] ** 2 / expected[expected > 0])
    assert abs(chi_square - degrees) < 4 * math.sqrt(2 * degrees)


def test_process_equals_probabilities_in_float64():
    # By plain float64 probabilities; rows where a rule is within 1e-4 of its edge are not compared.
    rng = np.random.default_rng(12)
    compared = 0
    for _ in range(400):
        x = rng.normal(0, 2, 12).astype(np.float32)
        temperature, k = float(rng.choice([0.5, 1, 2])), int(rng.integers(1, 13))
        top_p, min_p = float(rng.uniform(0.1, 0.99)), float(rng.uniform(0, 0.3))
        order = np.argsort(-x, kind="stable")
        p = np.exp(x[order].astype(np.float64) / temperature)
        p[k:] = 0
        p /= p.sum()
        before = np.cumsum(p) - p
        if min(np.abs(before - top_p).min(), np.abs(p / p[0] - min_p).min()) < 1e-4:
            continue
        expected = order[(p > 0) & (before < top_p) & (p >= min_p * p[0])]
        rules = batch(1, temperature=temperature, top_k=k, top_p=top_p, min_p=min_p)
        kept = np.flatnonzero(np.isfinite(process(x[None], rules)[0]))
        assert sorted(expected.tolist()) == kept.tolist()
        compared += 1
    assert compared > 300
