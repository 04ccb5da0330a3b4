"""Log-probabilities of sampled and of given tokens, of the model's own distribution.

That is log(softmax) of its logits: before temperature, penalties, biases and masks, as other engines and
APIs have it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kernels.arrays import Float32

from .commands import ScoreKind
from .types import EngineError

MOST_SCORES = 1 << 30
"""Bytes that the scores of one text may take."""

_GROUP = 64
"""Values of which the largest is looked at first."""


def log_softmax(logits: Float32) -> Float32:
    """log(softmax) of each row of [rows, vocabulary], summed in float64."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    total = np.exp(shifted, dtype=np.float32).sum(axis=-1, keepdims=True, dtype=np.float64)
    scores: Float32 = (shifted - np.log(total)).astype(np.float32)
    return scores


def token_logprob(logits: Float32, token: int, alternatives: int) -> tuple[float, list[tuple[int, float]]]:
    """Log-probability of a token of one row [vocabulary], and the most likely tokens with theirs.

    Of equal ones the lowest id comes first. The exponentials are all that is computed for every token: it
    runs between two steps of all others.
    """
    largest = logits.max()
    with np.errstate(invalid="ignore"):  # an infinite logit: there is no such number
        total = np.exp(logits - largest, dtype=np.float32).sum(dtype=np.float64)
    base = float(largest) + math.log(total)
    found = _largest(logits, alternatives)
    return float(logits[token]) - base, [(int(id), float(logits[id]) - base) for id in found]


def _largest(row: Float32, count: int) -> NDArray[np.intp]:
    """Indices of the `count` largest values, the largest first; of equal ones the first.

    The largest of each of many groups are `count` values or more, so none below the `count`-th of them is
    wanted: few are left to be sorted.
    """
    groups = len(row) // _GROUP
    candidates = np.arange(len(row) if count else 0)
    if 0 < count < groups:
        best = row[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
        candidates = np.flatnonzero(row >= np.partition(best, groups - count)[groups - count])
    return candidates[np.lexsort((candidates, -row[candidates]))[:count]]


class Scores:
    """Log-probabilities of one prompt, filled chunk by chunk.

    kind: `chosen` keeps those of the given tokens only, `all` those of the vocabulary. Row i of the full form
    is the distribution of the token after ids[: i + 1]; value i of the chosen form is that of ids[i] given
    ids[:i], NaN for the first, which nothing precedes.
    """

    def __init__(self, ids: list[int], vocabulary: int, kind: ScoreKind) -> None:
        self._ids = np.array(ids, np.int64)
        self._chosen = kind == "chosen"
        # Not filled: gigabytes would be touched at once, between two steps of all others.
        self.values = np.empty((len(ids),) if self._chosen else (len(ids), vocabulary), np.float32)
        if self._chosen:
            self.values[:1] = np.nan

    def add(self, start: int, logits: Float32) -> None:
        """Take in the logits of the tokens from position `start` on. Raises EngineError(bad_logits)."""
        if not np.isfinite(logits.max(axis=-1)).all():  # NaN anywhere in a row is its maximum, too
            raise EngineError("bad_logits", "the model produced NaN: this text has no log-probabilities")
        scores = log_softmax(logits)
        if not self._chosen:
            self.values[start : start + len(scores)] = scores
            return
        following = self._ids[start + 1 : start + 1 + len(scores)]
        self.values[start + 1 : start + 1 + len(following)] = scores[np.arange(len(following)), following]


def scores_bytes(tokens: int, vocabulary: int, kind: ScoreKind) -> int:
    """Size of the scores of a prompt."""
    return 4 * tokens * (1 if kind == "chosen" else vocabulary)
