from __future__ import annotations

import numpy as np
import pytest

from kernels.ranking import NO_TOKEN, best_tokens, key_ids, key_scores, rank_keys


def expected(scores: np.ndarray, k: int) -> tuple[list[list[int]], list[list[float]]]:
    """By sorting pairs in Python."""
    ids, values = [], []
    for row in scores.tolist():
        ordered = sorted((-x, i) for i, x in enumerate(row) if x != -np.inf)[:k]
        pad = k - len(ordered)
        ids.append([i for _, i in ordered] + [-1] * pad)
        values.append([-x for x, _ in ordered] + [-np.inf] * pad)
    return ids, values


def check(scores: np.ndarray, k: int) -> None:
    best = best_tokens(scores, k)
    ids, values = expected(scores, k)
    assert best.ids.tolist() == ids
    assert best.scores.tolist() == values
    assert best.ids.dtype == np.int32
    assert best.scores.dtype == np.float32


# 8192 is the size from which column maxima choose; with 128 the groups are 1024, with 1024 as wide as a line.
SIZES = [
    (1, 1),
    (5, 3),
    (300, 300),
    (8191, 64),
    (8192, 64),
    (8192, 1),
    (12_288, 40),
    (20_001, 64),
    (30_000, 128),
]


@pytest.mark.parametrize(("vocabulary", "k"), [*SIZES, (40_000, 1024), (49_152, 64)])
@pytest.mark.parametrize("levels", [None, 3, 200])
def test_order_is_score_then_id(vocabulary: int, k: int, levels: int | None):
    rng = np.random.default_rng([vocabulary, k])
    scores = rng.normal(0, 4, (3, vocabulary)).astype(np.float32)
    if levels is not None:
        scores = np.round(scores * levels / 16).astype(np.float32)  # many ties, some of them of -0 and +0
    check(scores, k)


@pytest.mark.parametrize("vocabulary", [70, 9000, 20_001])
def test_forbidden_tokens_are_left_out(vocabulary: int):
    rng = np.random.default_rng(vocabulary)
    scores = np.full((4, vocabulary), -np.inf, np.float32)
    for row, allowed in enumerate((0, 1, 40, 66)):
        scores[row, rng.permutation(vocabulary)[:allowed]] = rng.normal(-1e30, 1e29, allowed)
    check(scores, 64)


@pytest.mark.parametrize("vocabulary", [70, 9000, 20_001])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, -1])
def test_a_row_with_nan_or_infinity_has_no_tokens(vocabulary: int, value: float, place: int):
    scores = np.random.default_rng(1).normal(0, 4, (3, vocabulary)).astype(np.float32)
    good = best_tokens(scores, 64)
    scores[1, place] = value
    best = best_tokens(scores, 64)
    assert best.ids[1].tolist() == [-1] * 64
    assert best.scores[1].tolist() == [-np.inf] * 64
    assert best.ids[[0, 2]].tolist() == good.ids[[0, 2]].tolist()


@pytest.mark.parametrize("vocabulary", [100, 9000, 20_001])
def test_all_scores_equal(vocabulary: int):
    check(np.zeros((2, vocabulary), np.float32), 64)


@pytest.mark.parametrize("step", [1, 64, 512, 4096])
def test_the_best_may_lie_side_by_side_or_in_one_column(step: int):
    scores = np.random.default_rng(step).normal(0, 1, (2, 50_000)).astype(np.float32)
    scores[:, 7 : 7 + 12 * step : step] += 100
    check(scores, 64)


def test_keys_order_scores_and_ids_and_give_them_back():
    scores = np.array([-np.inf, -3e38, -1, -1, -1e-45, -0.0, 0.0, 1e-45, 2, 2, 3e38], np.float32)
    ids = np.array([0, 1, 9, 4, 5, 8, 6, 7, 2**31 - 1, 3, 2])
    keys = rank_keys(scores, ids)
    assert np.all(np.diff(keys) > 0)
    assert keys[0] > NO_TOKEN
    assert key_ids(keys).tolist() == ids.tolist()
    assert key_scores(keys).tolist() == scores.tolist()
    assert key_ids(np.array([NO_TOKEN])).tolist() == [-1]
    assert key_scores(np.array([NO_TOKEN])).tolist() == [-np.inf]
