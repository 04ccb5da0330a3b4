"""Lays out the sampling settings of a step's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.interface import Int32, SamplingBatch

from .sampler import Pairs, SamplerState

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_WORD = 2**64 - 1


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


def _join(pairs: list[Pairs], dtype: type[np.generic]) -> tuple[Int32, Int32, NDArray[Any]]:
    """Lists of different lengths one after the other: offsets [n + 1], ids and values."""
    offsets = np.zeros(len(pairs) + 1, np.int32)
    lengths = [len(ids) for ids, _ in pairs]
    if not any(lengths):
        return offsets, np.empty(0, np.int32), np.empty(0, dtype)
    np.cumsum(lengths, out=offsets[1:])
    ids = np.concatenate([np.asarray(ids, np.int32) for ids, _ in pairs])
    return offsets, ids, np.concatenate([np.asarray(values, dtype) for _, values in pairs])
