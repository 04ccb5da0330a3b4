"""Samplers and plans as the arrays of a step."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from engine.sampler import SamplerState
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence
from engine.step_builder import StepBuilder, sampling_step
from engine.step_plan import Run, StepPlan
from kernels import sampling as rules
from kernels.step import ARRAYS, Step

PENALTIES = SamplingParams(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.25)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def columns(step: Step) -> dict[str, list[float]]:
    """The arrays that say how to sample; of lists only what is in use."""
    ends = {"seen": step.seen_offsets[-1], "biased": step.bias_offsets[-1]}
    ends |= {"samples": None, "samples + 1": None}
    shapes = {array.name: array.shape[0] for array in ARRAYS if array.name != "sample_rows"}
    return {
        name: getattr(step, name)[: ends[count]].tolist() for name, count in shapes.items() if count in ends
    }


def plan_of(samplers: list[SamplerState], positions: list[int]) -> StepPlan:
    """Every sampler draws the token at its position, 1 or more, of a sequence of its own."""
    plan = StepPlan()
    for number, (sampler, position) in enumerate(zip(samplers, positions, strict=True)):
        sequence = Sequence(number, [0] * position, sampler)
        sequence.table.blocks.extend(range(-(-position // 16)))
        plan.runs.append(Run(sequence, position - 1, 1, 1))
    return plan


PENALTIES = SamplingParams(repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.25)


def test_a_step_holds_the_settings_of_its_rows():
    first = SamplingParams(
        temperature=0.7,
        top_k=40,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.5,
        presence_penalty=2,
        frequency_penalty=3,
        logit_bias={5: -1.0, 6: float("-inf")},
    )
    second = SamplingParams(top_k=2**62, temperature=sys.float_info.max)
    states = [SamplerState(first, 7, [3, 4, 3]), SamplerState(second, -1, [3, 4])]
    states[0].observe(9)
    states[0].observe(4)
    step = StepBuilder(16).build(plan_of(states, [12, 34]))
    found = columns(step)
    assert found["temperature"] == [np.float32(0.7), np.finfo(np.float32).max]
    assert found["top_k"] == [40, 2**31 - 1]
    assert found["top_p"] == [np.float32(0.9), 1]
    assert found["min_p"] == [np.float32(0.1), 0]
    assert (found["repetition"], found["presence"], found["frequency"]) == ([1.5, 1], [2, 0], [3, 0])
    assert (found["seeds"], found["draw_positions"]) == ([7, 2**64 - 1], [12, 34])
    assert found["seen_offsets"] == [0, 3, 3]
    seen = dict(zip(found["seen_ids"], found["seen_counts"], strict=True))
    assert seen == {3: 0, 4: 1, 9: 1}
    assert (found["bias_offsets"], found["bias_ids"]) == ([0, 2, 2], [5, 6])
    assert found["bias_values"] == [-1, -np.inf]
    types = {name: getattr(step, name).dtype.name for name in found}
    for name in ("top_k", "seen_offsets", "seen_ids", "seen_counts", "bias_offsets", "bias_ids"):
        assert types.pop(name) == "int32"
    assert (types.pop("seeds"), types.pop("draw_positions")) == ("uint64", "int64")
    assert types.pop("mask") == "uint32"
    assert set(types.values()) == {"float32"}
    assert columns(sampling_step(states, [12, 34])) == found


def test_the_prompt_is_listed_for_the_repetition_penalty_alone():
    for params in (SamplingParams(presence_penalty=1), SamplingParams(frequency_penalty=1)):
        state = SamplerState(params, 1, [1, 2, 3])
        assert len(state.seen[0]) == 0
        state.observe(2)
        assert (list(state.seen[0]), list(state.seen[1])) == ([2], [1])
    plain = SamplerState(SamplingParams(), 1, [1, 2, 3])
    plain.observe(2)
    assert len(plain.seen[0]) == 0


def test_a_builder_in_use_gives_what_a_new_one_would():
    rng = np.random.default_rng(5)
    kinds = [SamplingParams(), PENALTIES, SamplingParams(min_tokens=3), SamplingParams(logit_bias={1: 2.0})]
    states = [SamplerState(kinds[i % 4], i, [1, 2, i], [0, 2]) for i in range(12)]
    builder = StepBuilder(16)
    for step in range(60):
        rows = states if step % 20 < 10 else [states[i] for i in rng.permutation(12)[: rng.integers(0, 12)]]
        plan = plan_of(rows, rng.integers(1, 100, len(rows)).tolist())
        step = builder.build(plan)
        assert columns(step) == columns(StepBuilder(16).build(plan))
        tokens = rules.sample(rng.normal(0, 1, (len(rows), 60)).astype(np.float32), step)
        for state, token in zip(rows, tokens.tolist(), strict=True):
            state.observe(token)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(min_tokens=3),
        SamplingParams(logit_bias={1: 2.0}),
        SamplingParams(stop_token_ids=(5,)),
        SamplingParams(repetition_penalty=1.1),
        SamplingParams(presence_penalty=0.1),
        SamplingParams(frequency_penalty=0.1),
    ],
)
def test_a_row_lists_what_its_state_says_beside_plain_rows(params: SamplingParams):
    states = [SamplerState(setting, 1, [1, 2], [0, 2]) for setting in (SamplingParams(), params)]
    for rows in (states, states[1:]):
        builder = StepBuilder(16)
        for token in range(5):
            step = builder.build(plan_of(rows, [token + 1] * len(rows)))
            for i, state in enumerate(rows):
                seen = slice(step.seen_offsets[i], step.seen_offsets[i + 1])
                bias = slice(step.bias_offsets[i], step.bias_offsets[i + 1])
                assert step.seen_ids[seen].tolist() == list(state.seen[0])
                assert step.seen_counts[seen].tolist() == list(state.seen[1])
                assert step.bias_ids[bias].tolist() == list(state.bias[0])
                assert step.bias_values[bias].tolist() == list(state.bias[1])
                state.observe(token)


def test_counting_token_by_token_equals_counting_at_once():
    rng = np.random.default_rng(4)
    prompt, reply = rng.integers(0, 30, 40).tolist(), rng.integers(0, 50, 200).tolist()
    state = SamplerState(PENALTIES, 1, prompt)
    for length, token in enumerate(reply, start=1):
        state.observe(token)
        ids, counts = state.seen
        assert dict(zip(ids, counts, strict=True)) == {
            t: reply[:length].count(t) for t in {*prompt, *reply[:length]}
        }
        assert len(set(ids)) == len(ids)


def test_a_step_keeps_its_values_while_the_next_one_is_built():
    builder, state = StepBuilder(16), SamplerState(PENALTIES, 1, [1])
    step = builder.build(plan_of([state], [1]))
    before = step.memory.tobytes()
    state.observe(5)
    later = builder.build(plan_of([state, state], [40, 50]))
    assert step.memory.tobytes() == before
    assert not np.shares_memory(step.memory, later.memory)
    assert np.shares_memory(step.memory, builder.build(plan_of([state], [3])).memory)


@pytest.mark.parametrize(
    ("settings", "forbidden"),
    [
        ({"min_tokens": 2}, {0, 2}),
        ({"min_tokens": 2, "stop_token_ids": (2, 7)}, {0, 2, 7}),
        ({"min_tokens": 2, "ignore_eos": True}, set()),
        ({"min_tokens": 2, "ignore_eos": True, "stop_token_ids": (7,)}, {7}),
        ({}, set()),
    ],
)
def test_end_tokens_are_forbidden_until_min_tokens_are_out(settings: dict, forbidden: set[int]):
    params = SamplingParams(logit_bias={2: 5.0, 4: 1.0}, **settings)
    state = SamplerState(params, 1, [1], frozenset({0, 2}))
    builder = StepBuilder(16)
    for out in range(4):
        step = builder.build(plan_of([state], [out + 1]))
        found = columns(step)
        bias = dict(zip(found["bias_ids"], found["bias_values"], strict=True))
        expected = {2: 5.0, 4: 1.0} | (dict.fromkeys(forbidden, -np.inf) if out < 2 else {})
        assert bias == expected
        state.observe(9)
