"""Steps of a backend, and the sampling of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.step import ARRAYS, Step

Pairs = list[dict[int, float]]
"""Of each row: values by token id."""


def ragged(pairs: Pairs, dtype: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, ids and values of the pairs."""
    offsets = np.cumsum([0, *(len(pair) for pair in pairs)]).astype(np.int32)
    ids = np.array([i for pair in pairs for i in pair], np.int32)
    return offsets, ids, np.array([v for pair in pairs for v in pair.values()], dtype)


def sampling(
    n: int,
    *,
    seen: Pairs | None = None,
    bias: Pairs | None = None,
    mask: np.ndarray | None = None,
    **settings: Any,
) -> Step:
    """A step that only samples n rows; a single value holds for all of them. Where nothing is said, the token
    at position i is drawn from the whole vocabulary.

    seen: counts by id. bias: values by id. mask: whether each token is allowed, bool [n, vocabulary].
    """
    settings = {"temperature": 1.0, "seeds": 1, "draw_positions": np.arange(n), **settings}
    arrays = {name: np.broadcast_to(values, n) for name, values in settings.items()}
    for kind, values, pairs, dtype in (
        ("seen", "counts", seen, np.int32),
        ("bias", "values", bias, np.float32),
    ):
        offsets, ids, found = ragged(pairs or [{}] * n, dtype)
        arrays |= {f"{kind}_offsets": offsets, f"{kind}_ids": ids, f"{kind}_{values}": found}
    if mask is not None:
        arrays["mask"] = packed_mask(mask)
    return Step.of(**arrays)


def packed_mask(allowed: np.ndarray) -> np.ndarray:
    """`Step.mask` of bool [n, vocabulary]."""
    bits = np.pad(allowed, ((0, 0), (0, -allowed.shape[1] % 32)))
    return np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32)


def arrays_of(step: Step) -> dict[str, np.ndarray]:
    """A step's arrays by name."""
    return {array.name: getattr(step, array.name) for array in ARRAYS}


def changed(step: Step, **arrays: Any) -> Step:
    """A step with other arrays in place of its own; a mask may be none."""
    return Step.of(
        **{name: values for name, values in (arrays_of(step) | arrays).items() if values is not None}
    )


def step(parts: list[tuple[list[int], int, list[int]]], block_size: int = 32, samples: str = "all") -> Step:
    """A greedy step of (tokens, first position, blocks) for each sequence; samples: all rows or last ones."""
    counts = [len(tokens) for tokens, _, _ in parts]
    positions = np.concatenate([start + np.arange(len(t)) for t, start, _ in parts]).astype(np.int32)
    sequences = np.repeat(np.arange(len(parts)), counts).astype(np.int32)
    tables = np.zeros((len(parts), max(1, *(len(b) for *_, b in parts))), np.int32)
    for i, (_, _, blocks) in enumerate(parts):
        tables[i, : len(blocks)] = blocks
    slots = tables[sequences, positions // block_size] * block_size + positions % block_size
    rows = np.arange(len(positions)) if samples == "all" else np.cumsum(counts) - 1
    return Step.of(
        tokens=np.concatenate([np.array(t) for t, _, _ in parts]).astype(np.int32),
        positions=positions,
        slots=slots.astype(np.int32),
        sequences=sequences,
        block_tables=tables,
        sample_rows=rows.astype(np.int32),
    )


def unsampled(step: Step) -> Step:
    """The rows of a step without any sample."""
    names = "tokens", "positions", "slots", "sequences", "block_tables"
    return Step.of(**{name: getattr(step, name) for name in names})
