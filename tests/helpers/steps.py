"""Steps of a backend, and the sampling of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.interface import Batch, SamplingBatch

Pairs = list[dict[int, float]]
"""Of each row: values by token id."""


def ragged(pairs: Pairs, dtype: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, ids and values of the pairs."""
    offsets = np.cumsum([0, *(len(pair) for pair in pairs)]).astype(np.int32)
    ids = np.array([i for pair in pairs for i in pair], np.int32)
    return offsets, ids, np.array([v for pair in pairs for v in pair.values()], dtype)


def sampling_batch(
    n: int,
    *,
    temperature: Any = 1.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    min_p: Any = 0.0,
    repetition: Any = 1.0,
    presence: Any = 0.0,
    frequency: Any = 0.0,
    seeds: Any = 1,
    positions: Any = None,
    seen: Pairs | None = None,
    bias: Pairs | None = None,
) -> SamplingBatch:
    """A batch of n rows; a single value holds for all of them. seen: counts by id; bias: values by id."""
    floats = (temperature, top_p, min_p, repetition, presence, frequency)
    columns = [np.broadcast_to(np.asarray(value, np.float32), n).copy() for value in floats]
    return SamplingBatch(
        columns[0],
        np.broadcast_to(np.asarray(top_k, np.int32), n).copy(),
        *columns[1:],
        np.broadcast_to(np.asarray(seeds, np.uint64), n).copy(),
        np.arange(n) if positions is None else np.broadcast_to(np.asarray(positions, np.int64), n).copy(),
        *ragged(seen or [{}] * n, np.int32),
        *ragged(bias or [{}] * n, np.float32),
    )


def greedy(samples: int) -> SamplingBatch:
    """The most likely token of each row, without penalties."""
    return sampling_batch(samples, temperature=0)


def step(parts: list[tuple[list[int], int, list[int]]], block_size: int = 32, samples: str = "all") -> Batch:
    """A greedy step of (tokens, first position, blocks) for each sequence; samples: all rows or last ones."""
    counts = [len(tokens) for tokens, _, _ in parts]
    positions = np.concatenate([start + np.arange(len(t)) for t, start, _ in parts]).astype(np.int32)
    sequences = np.repeat(np.arange(len(parts)), counts).astype(np.int32)
    tables = np.zeros((len(parts), max(1, *(len(b) for *_, b in parts))), np.int32)
    for i, (_, _, blocks) in enumerate(parts):
        tables[i, : len(blocks)] = blocks
    slots = tables[sequences, positions // block_size] * block_size + positions % block_size
    rows = np.arange(len(positions)) if samples == "all" else np.cumsum(counts) - 1
    return Batch(
        tokens=np.concatenate([np.array(t) for t, _, _ in parts]).astype(np.int32),
        positions=positions,
        slots=slots.astype(np.int32),
        sequences=sequences,
        block_tables=tables,
        sample_rows=rows.astype(np.int32),
        sampling=greedy(len(rows)),
    )
