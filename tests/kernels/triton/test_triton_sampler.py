"""Sampling in Triton's interpreter: token by token that of the specification."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.sampling import sample as specified
from kernels.step import Step
from kernels.triton import sampler
from kernels.triton.batch import Batch
from kernels.triton.sampler import Rules, sample
from random_samples import random_batch, random_logits
from steps import sampling as batch

CPU = torch.device("cpu")


def drawn(logits: np.ndarray, step: Step, asked: Rules | None = None) -> list[int]:
    return sample(torch.from_numpy(logits), Batch.of(step, CPU), asked).tolist()


@pytest.mark.parametrize(("seed", "vocabulary"), [(1, 7), (2, 300)])
def test_tokens_are_those_of_the_specification(seed, vocabulary, monkeypatch):
    print(f"{seed=}")
    monkeypatch.setattr(sampler, "CHUNK", 256)
    rng = np.random.default_rng(seed)
    step, logits = random_batch(rng, 5, vocabulary), random_logits(rng, 5, vocabulary)
    assert drawn(logits, step) == specified(logits, step).tolist()


@pytest.mark.parametrize("rule", ["top_k", "top_p", "min_p"])
def test_cuts_among_equal_logits_go_by_the_id(rule, monkeypatch):
    monkeypatch.setattr(sampler, "CHUNK", 32)
    logits = np.tile(np.float32([0, 2, 1, 1, 2, -np.inf, 1, 0]), (4, 8))
    values = {"top_k": [2, 17, 20, 40], "top_p": [0.1, 0.6, 0.75, 0.999], "min_p": [0.14, 0.36, 0.37, 0.999]}
    step = batch(4, temperature=10.0, seeds=np.arange(4) + 20, **{rule: np.array(values[rule], np.float32)})
    assert drawn(logits, step) == specified(logits, step).tolist()


def test_passes_that_no_row_needs_change_nothing():
    rng = np.random.default_rng(8)
    logits = random_logits(rng, 3, 200)
    step = batch(3, temperature=np.array([0, 1, 0.7]))
    assert Rules.of(step) == (False, False)
    assert drawn(logits, step, Rules(True, True)) == drawn(logits, step) == specified(logits, step).tolist()
    assert Rules.of(batch(2, top_p=0.9)) == (False, True)
    assert Rules.of(batch(2, top_k=5, temperature=0)) == (False, False)
    assert Rules.of(batch(2, seen=[{1: 1}, {}])) == (True, False)


def test_broken_rows_are_told_and_no_rows_are_none():
    logits = np.zeros((4, 10), np.float32)
    logits[0, 3], logits[1, 3], logits[2] = np.nan, np.inf, -np.inf
    assert drawn(logits, batch(4, temperature=0.5))[:3] == [-1, -1, -1]
    assert drawn(logits, batch(4, temperature=0)) == [-1, -1, -1, 0]
    assert drawn(np.zeros((0, 10), np.float32), batch(0)) == []
