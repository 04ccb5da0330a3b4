"""The sampling rules for use on their own: single calls, without an engine.

What the rules are is written in `kernels.sampling`. Every path (steps, drafts, the functions here) uses them;
a backend that has its own code for them starts without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.arrays import Float32

from .arrays import as_array, like
from .sampler import SamplerState, check_params
from .sampling_params import SamplingParams
from .step_builder import sampling_step


def process_logits(
    logits: Any,
    params: SamplingParams | Sequence[SamplingParams],
    prompt_ids: Sequence[Any],
    output_ids: Sequence[Any],
) -> Any:
    """Logits [B, vocabulary] after penalties, bias, temperature and truncation; removed tokens are -inf.

    params: for all rows, or one a row. prompt_ids, output_ids: a list of ids for each row, or one for a
    single row; [] is no history. Temperature 0 divides by nothing. Returns float32 of the logits' shape: a
    tensor if they are one, else an array. ValueError: a number of rows or an id that does not fit.
    """
    from kernels.sampling import process

    rows = _matrix(logits)
    prompts = _per_row(prompt_ids, rows, "prompt_ids")
    outputs = _per_row(output_ids, rows, "output_ids")
    states = []
    for setting, prompt, output in zip(_params(params, rows), prompts, outputs, strict=True):
        state = SamplerState(setting, 0, prompt)
        for token in output:
            state.observe(token)
        states.append(state)
    result = process(rows, sampling_step(states, [0] * len(states)))
    return like(logits, result.reshape(np.shape(logits)))


def sample(
    logits: Any,
    params: SamplingParams | Sequence[SamplingParams],
    seeds: int | Sequence[int],
    positions: int | Sequence[int],
) -> Any:
    """The next token of each row of logits [B, vocabulary]: int32 [B], -1 where a row has NaN or forbids all.

    Without a history: penalties and min_tokens do nothing. Everything else is as in `process_logits`.
    """
    from kernels.sampling import sample as sampled

    rows = _matrix(logits)
    states = [
        SamplerState(replace(setting, min_tokens=0), seed)
        for setting, seed in zip(_params(params, rows), _numbers(seeds, rows, "seeds"), strict=True)
    ]
    step = sampling_step(states, _numbers(positions, rows, "positions"))
    return like(logits, sampled(rows, step))


def _matrix(logits: Any) -> Float32:
    rows = as_array(logits).astype(np.float32, copy=False)
    if rows.ndim not in (1, 2):
        raise ValueError(f"logits must have the shape [rows, vocabulary], not {list(rows.shape)}")
    return np.atleast_2d(rows)


def _params(params: SamplingParams | Sequence[SamplingParams], rows: Float32) -> list[SamplingParams]:
    settings = [params] * len(rows) if isinstance(params, SamplingParams) else list(params)
    if len(settings) != len(rows):
        raise ValueError(f"params must be one setting or {len(rows)}, one a row, not {len(settings)}")
    for setting in settings:
        check_params(setting, rows.shape[1])
    return settings


def _numbers(value: int | Sequence[int], rows: Float32, name: str) -> list[int]:
    numbers = [value] * len(rows) if isinstance(value, (int, np.integer)) else list(value)
    if len(numbers) != len(rows):
        raise ValueError(f"{name} must be one number or {len(rows)}, one a row, not {len(numbers)}")
    return [int(number) for number in numbers]


def _per_row(ids: Sequence[Any], rows: Float32, name: str) -> list[list[int]]:
    """Token ids by row, each inside the vocabulary."""
    if len(ids) == 0:
        return [[]] * len(rows)
    lists = [ids] if len(rows) == 1 and np.ndim(ids[0]) == 0 else ids
    if len(lists) != len(rows):
        raise ValueError(f"{name} must hold {len(rows)} lists of ids, one a row, not {len(lists)}")
    result = [[int(token) for token in row] for row in lists]
    for token in (token for row in result for token in row):
        if not 0 <= token < rows.shape[1]:
            raise ValueError(f"{name} holds token {token}, but the ids go from 0 to {rows.shape[1] - 1}")
    return result
