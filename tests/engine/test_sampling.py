from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

from engine.sampler import check_params, derive_seed
from engine.sampling import process_logits, sample
from engine.sampling_params import SamplingParams, random_seed

SCORES = [2.0, -1.0, 0.5, -3.0]
PROBABILITIES = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# The two functions for use on their own


def test_B057_penalty_makes_negative_scores_lower():
    params = SamplingParams(repetition_penalty=2)
    for prompt, output in (([0, 1], []), ([], [0, 1]), ([0], [1]), ([0, 0, 0, 0, 0], [1, 1, 0])):
        result = process_logits([SCORES], params, [prompt], [output])
        assert result.tolist() == [[1.0, -2.0, 0.5, -3.0]]
        assert result.dtype == np.float32
    assert process_logits([SCORES], SamplingParams(), [[0, 1]], [[0]]).tolist() == [SCORES]


def test_B057_penalty_at_temperature_0_gives_the_penalized_scores():
    params = SamplingParams(temperature=0, repetition_penalty=2)
    assert process_logits([SCORES], params, [[0, 1]], [[]]).tolist() == [[1.0, -2.0, 0.5, -3.0]]


def test_presence_and_frequency_penalties_count_the_reply_alone():
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    result = process_logits([SCORES], params, [[2, 3]], [[0, 1, 0]])
    assert result.tolist() == [[1.0, -1.75, 0.5, -3.0]]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"min_p": 0.2}, 3),
        ({"top_p": 0.75}, 2),
        ({"top_p": 0.0}, 1),
        ({"top_p": 1.0}, 4),
        ({"top_k": 1}, 1),
        ({"top_k": 0}, 4),
        ({"top_k": 10**9}, 4),
        ({"top_k": 2**63 - 1}, 4),
        ({"min_p": 1}, 1),
        ({"min_p": 0}, 4),
    ],
)
def test_B055_edge_values_of_truncation(settings: dict[str, float], kept: int):
    result = process_logits(PROBABILITIES[None], SamplingParams(**settings), [[]], [[]])
    assert np.isfinite(result[0]).tolist() == [i < kept for i in range(4)]
    assert result[0, :kept].tolist() == PROBABILITIES[:kept].tolist()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": -0.1}, "top_p"),
        ({"min_p": -1}, "min_p"),
        ({"top_k": -1}, "top_k"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
    ],
)
def test_B053_B055_values_out_of_range_are_refused(settings: dict[str, float], name: str):
    with pytest.raises(ValueError, match=rf"{name} must be in [\[(]"):
        SamplingParams(**settings)


@pytest.mark.parametrize("temperature", [0, 1e-300, 1e-38, 1e-6, 1e9, 1e300, sys.float_info.max])
def test_B053_every_temperature_gives_a_token(temperature: float):
    logits = np.random.default_rng(1).normal(0, 3, (40, 100)).astype(np.float32)
    logits[:, 7] = -np.inf
    tokens = sample(logits, SamplingParams(temperature=temperature), list(range(40)), 5)
    if temperature < 1:
        assert tokens.tolist() == logits.argmax(axis=1).tolist()
    else:
        assert len(set(tokens.tolist())) > 20
        assert not {-1, 7} & set(tokens.tolist())


def test_temperature_divides():
    result = process_logits([SCORES], SamplingParams(temperature=0.5), [[]], [[]])
    assert result.tolist() == [[4.0, -2.0, 1.0, -6.0]]


def test_bias_and_forbidden_tokens():
    params = SamplingParams(logit_bias={0: 1.5, 2: float("-inf"), 3: -1e300})
    result = process_logits([SCORES], params, [[]], [[]])
    assert result.tolist() == [[3.5, -1.0, -np.inf, -np.inf]]


def test_stop_tokens_are_forbidden_until_min_tokens_are_out():
    params = SamplingParams(min_tokens=2, stop_token_ids=(1, 3), logit_bias={3: 9.0, 0: 1.0})
    early, late = [3.0, -np.inf, 0.5, -np.inf], [3.0, -1.0, 0.5, 6.0]
    for output, expected in (([], early), ([2], early), ([2, 2], late), ([2, 2, 2], late)):
        assert process_logits([SCORES], params, [[0]], [output]).tolist() == [expected]


def test_each_row_has_its_own_settings_and_history():
    params = [SamplingParams(repetition_penalty=2), SamplingParams(top_k=1), SamplingParams()]
    result = process_logits([SCORES] * 3, params, [[0], [], [1]], [[1], [2], []])
    assert result.tolist() == [[1.0, -2.0, 0.5, -3.0], [2.0, *[-np.inf] * 3], SCORES]
    tokens = sample([SCORES] * 3, [SamplingParams(temperature=0)] * 3, [1, 2, 3], [4, 5, 6])
    assert tokens.tolist() == [0, 0, 0]


def test_a_single_row_may_come_without_the_outer_lists():
    params = SamplingParams(repetition_penalty=2)
    assert process_logits(SCORES, params, [0, 1], []).tolist() == [1.0, -2.0, 0.5, -3.0]
    assert process_logits(np.array([SCORES]), params, np.array([[0, 1]]), []).tolist() == [[1, -2, 0.5, -3]]
    assert sample(SCORES, SamplingParams(temperature=0), 1, 0).tolist() == [0]


def test_a_draw_depends_on_seed_and_position_alone():
    logits = np.random.default_rng(2).normal(0, 1, (1, 500)).astype(np.float32)
    rows = np.repeat(logits, 6, axis=0)
    params = SamplingParams()
    tokens = sample(rows, params, [1, 1, 2, 2, -1, 2**64 - 1], [10, 11, 10, 11, 10, 10]).tolist()
    assert len(set(tokens[:4])) == 4
    assert tokens[4] == tokens[5]  # a negative seed is the same 64 bits
    assert sample(rows[:1], params, [2], [11]).tolist() == tokens[3:4]
    assert sample(rows, params, 1, 10).tolist() == tokens[:1] * 6


def test_process_and_sample_agree():
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 2, (200, 50)).astype(np.float32)
    params = [
        SamplingParams(temperature=float(rng.choice([0, 0.5, 1])), top_k=int(rng.integers(0, 6)), top_p=0.8)
        for _ in range(200)
    ]
    left = np.isfinite(process_logits(logits, params, [], []))
    tokens = sample(logits, params, list(range(200)), 0)
    assert left[np.arange(200), tokens].all()
    assert left.sum() < 200 * 6


def test_tensors_give_tensors():
    torch = pytest.importorskip("torch")
    logits = torch.tensor([SCORES], dtype=torch.bfloat16, requires_grad=True)
    result = process_logits(logits, SamplingParams(repetition_penalty=2), torch.tensor([[0, 1]]), [[]])
    assert isinstance(result, torch.Tensor)
    assert result.dtype == torch.float32
    assert result.tolist() == [[1.0, -2.0, 0.5, -3.0]]
    tokens = sample(logits, SamplingParams(temperature=0), torch.tensor([1]), [0])
    assert isinstance(tokens, torch.Tensor)
    assert tokens.tolist() == [0]


def test_arguments_are_left_as_they_are():
    logits = np.array([SCORES], np.float32)
    params = SamplingParams(repetition_penalty=2, logit_bias={0: 1.0})
    process_logits(logits, params, [[0, 1]], [[]])
    sample(logits, params, 1, 0)
    assert logits.tolist() == [SCORES]


def test_rows_without_a_choice_give_minus_1():
    logits = np.array([SCORES, SCORES, [np.nan, 1, 1, 1], [-np.inf] * 4], np.float32)
    forbidden = SamplingParams(logit_bias=dict.fromkeys(range(4), float("-inf")))
    params = [SamplingParams(temperature=0), forbidden, SamplingParams(), SamplingParams()]
    assert sample(logits, params, 1, 0).tolist() == [0, -1, -1, -1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([SCORES], SamplingParams(), [[4]], [[]]), "prompt_ids holds token 4, but the ids go from 0 to 3"),
        (([SCORES], SamplingParams(), [[]], [[-1]]), "output_ids holds token -1"),
        (([SCORES] * 2, SamplingParams(), [[0]], [[], []]), "prompt_ids must hold 2 lists"),
        (([SCORES] * 2, [SamplingParams()], [], []), "params must be one setting or 2"),
        (([[SCORES]], SamplingParams(), [], []), r"logits must have the shape"),
        (([SCORES], SamplingParams(logit_bias={4: 1.0}), [], []), "logit_bias names token 4"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: tuple, message: str):
    with pytest.raises(ValueError, match=message):
        process_logits(*arguments)


@pytest.mark.parametrize("name", ["seeds", "positions"])
def test_one_seed_and_position_a_row(name: str):
    arguments = {"seeds": [1, 2], "positions": [1, 2], name: [1, 2, 3]}
    with pytest.raises(ValueError, match=f"{name} must be one number or 2"):
        sample([SCORES] * 2, SamplingParams(), **arguments)


# Settings and seeds


def test_ids_outside_the_vocabulary_are_refused():
    check_params(SamplingParams(logit_bias={9: 1.0}, stop_token_ids=(9,)), 10)
    check_params(SamplingParams(), 10)
    with pytest.raises(ValueError, match="logit_bias names token 10, but the ids go from 0 to 9"):
        check_params(SamplingParams(logit_bias={3: 1.0, 10: 1.0}), 10)
    with pytest.raises(ValueError, match="stop_token_ids names token 11"):
        check_params(SamplingParams(stop_token_ids=(1, 11)), 10)


def test_random_seeds_differ_and_fit_into_53_bits():
    seeds = [random_seed() for _ in range(1000)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**53 for seed in seeds)
    assert max(seeds) > 2**51


def test_derived_seeds_differ_and_stay_the_same():
    seeds = [derive_seed(seed, index) for seed in (0, 1, 2, -1, 2**63 - 1) for index in range(200)]
    assert len({*seeds, 0, 1, 2}) == 1003
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(-1, 3) == derive_seed(2**64 - 1, 3)
    assert derive_seed(42, 0) == 3166309114763032834


# The state of a sampler


def test_importing_it_needs_no_torch():
    code = "import sys, engine.sampling; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
