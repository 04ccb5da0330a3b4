"""Sampling settings of requests, laid out for a step; and the rules for use on their own.

What the rules are is written in `kernels.sampling`. Every path (steps, drafts, the functions here) uses them;
a backend that has its own code for them starts without.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.interface import Float32, Int32, SamplingBatch

from .arrays import as_array, like
from .types import SamplingParams

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_FORBIDDEN = -np.inf
_WORD = 2**64 - 1

_Pairs = tuple[Sequence[int], Sequence[float]]
"""Token ids, each once, and a value for each."""


def random_seed() -> int:
    """A seed of 63 bits from the system: it fits into a signed integer of JSON readers and databases."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def derive_seed(seed: int, index: int) -> int:
    """Seed of 63 bits of the index-th of several replies to one prompt."""
    from kernels.noise import splitmix64

    first = splitmix64(np.array([seed & _WORD], np.uint64))
    return int(splitmix64(first + np.uint64(index))[0]) >> 1


def check_params(params: SamplingParams, vocabulary: int) -> None:
    """ValueError if the settings name a token id that the model does not have."""
    for name, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        if ids and max(ids) >= vocabulary:
            raise ValueError(f"{name} names token {max(ids)}, but the ids go from 0 to {vocabulary - 1}")


class SamplerState:
    """What a draw depends on: the request's settings and seed, and the tokens seen before it.

    seen: ids and how often each stands in the reply; kept only if a penalty is on. The prompt counts for the
    repetition penalty alone. end_ids: forbidden, as stop_token_ids are, until min_tokens are out.
    """

    __slots__ = ("_early_bias", "_late_bias", "_outputs", "_places", "params", "seed", "seen")

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        prompt_ids: Iterable[int] = (),
        end_ids: Collection[int] = (),
    ) -> None:
        self.params = params
        self.seed = seed
        self.seen: tuple[array[int], array[int]] = (array("i"), array("i"))
        self._places: dict[int, int] | None = None
        self._outputs = 0
        repeated = params.repetition_penalty != 1
        if repeated or params.presence_penalty or params.frequency_penalty:
            prompt = list(dict.fromkeys(prompt_ids)) if repeated else []
            self._places = {token: place for place, token in enumerate(prompt)}
            self.seen = (array("i", prompt), array("i", [0]) * len(prompt))
        bias = {id: b if b > -_FLOAT32_MAX else _FORBIDDEN for id, b in params.logit_bias.items()}
        self._late_bias: _Pairs = (tuple(bias), tuple(bias.values()))
        bias |= dict.fromkeys(params.stop_token_ids, _FORBIDDEN)
        bias |= dict.fromkeys(() if params.ignore_eos else end_ids, _FORBIDDEN)
        self._early_bias: _Pairs = (tuple(bias), tuple(bias.values()))

    @property
    def plain(self) -> bool:
        """Whether no token is treated differently, now or later: no penalties and no biases."""
        return self._places is None and not self._late_bias[0] and self.params.min_tokens == 0

    def observe(self, token: int) -> None:
        """Count a token of the reply."""
        self._outputs += 1
        if self._places is None:
            return
        ids, counts = self.seen
        place = self._places.setdefault(token, len(ids))
        if place == len(ids):
            ids.append(token)
            counts.append(0)
        counts[place] += 1

    def ahead(self, drafts: Sequence[int]) -> SamplerState:
        """The state after these tokens, should they come; the same one where they make no difference."""
        if not drafts or self.plain:
            return self
        state = copy(self)
        state.seen = (self.seen[0][:], self.seen[1][:])
        state._places = None if self._places is None else dict(self._places)
        for token in drafts:
            state.observe(token)
        return state

    @property
    def bias(self) -> _Pairs:
        """What is added to the logits of the next token, by id."""
        return self._early_bias if self._outputs < self.params.min_tokens else self._late_bias


class SamplingBatchBuilder:
    """Lays out the sample rows of a step. While the rows stay the same requests, their settings are kept."""

    def __init__(self) -> None:
        self._states: list[SamplerState] = []
        self._settings = _settings([])
        self._lists: dict[str, Any] | None = _lists([])

    def build(self, states: list[SamplerState], positions: list[int]) -> SamplingBatch:
        """The batch whose row i draws the token at positions[i] of its sequence as states[i] says."""
        if states != self._states:
            self._states = list(states)
            self._settings = _settings(states)
            self._lists = _lists(states) if all(state.plain for state in states) else None
        lists = _lists(states) if self._lists is None else self._lists
        return SamplingBatch(**self._settings, **lists, positions=np.array(positions, np.int64))


def _settings(states: list[SamplerState]) -> dict[str, Any]:
    """The columns of a batch that do not change from token to token."""
    params = [state.params for state in states]
    floats = {
        "temperature": [min(p.temperature, _FLOAT32_MAX) for p in params],
        "top_p": [p.top_p for p in params],
        "min_p": [p.min_p for p in params],
        "repetition": [p.repetition_penalty for p in params],
        "presence": [p.presence_penalty for p in params],
        "frequency": [p.frequency_penalty for p in params],
    }
    return {
        **{name: np.array(values, np.float32) for name, values in floats.items()},
        "top_k": np.array([min(p.top_k, 2**31 - 1) for p in params], np.int32),
        "seeds": np.array([state.seed & _WORD for state in states], np.uint64),
    }


def _lists(states: list[SamplerState]) -> dict[str, Any]:
    """The columns of a batch that say which tokens are penalized or biased."""
    seen_offsets, seen_ids, seen_counts = _join([state.seen for state in states], np.int32)
    bias_offsets, bias_ids, bias_values = _join([state.bias for state in states], np.float32)
    return {
        "seen_offsets": seen_offsets,
        "seen_ids": seen_ids,
        "seen_counts": seen_counts,
        "bias_offsets": bias_offsets,
        "bias_ids": bias_ids,
        "bias_values": bias_values,
    }


def _join(pairs: list[_Pairs], dtype: type[np.generic]) -> tuple[Int32, Int32, NDArray[Any]]:
    """Lists of different lengths one after the other: offsets [n + 1], ids and values."""
    offsets = np.zeros(len(pairs) + 1, np.int32)
    lengths = [len(ids) for ids, _ in pairs]
    if not any(lengths):
        return offsets, np.empty(0, np.int32), np.empty(0, dtype)
    np.cumsum(lengths, out=offsets[1:])
    ids = np.concatenate([np.asarray(ids, np.int32) for ids, _ in pairs])
    return offsets, ids, np.concatenate([np.asarray(values, dtype) for _, values in pairs])


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
    result = process(rows, SamplingBatchBuilder().build(states, [0] * len(states)))
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
    batch = SamplingBatchBuilder().build(states, _numbers(positions, rows, "positions"))
    return like(logits, sampled(rows, batch))


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
