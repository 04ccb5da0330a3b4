"""Log-probabilities of sampled and of given tokens, from the unmodified logits."""

from __future__ import annotations

import numpy as np

from kernels.interface import Float32

from .types import TokenLogprob


def log_softmax(logits: Float32) -> Float32:
    """log(softmax) of each row of [rows, vocabulary], summed in float64."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    total = np.exp(shifted, dtype=np.float32).sum(axis=-1, keepdims=True, dtype=np.float64)
    scores: Float32 = (shifted - np.log(total)).astype(np.float32)
    return scores


def token_logprob(logits: Float32, token: int, alternatives: int) -> TokenLogprob:
    """Log-probability of a token of one row [vocabulary] and of the best alternatives, best first."""
    scores = log_softmax(logits[None, :])[0]
    best = np.argpartition(-scores, min(alternatives, len(scores) - 1))[:alternatives]
    ordered = best[np.lexsort((best, -scores[best]))]
    return TokenLogprob(token, float(scores[token]), tuple((int(i), float(scores[i])) for i in ordered))


class Scores:
    """Log-probabilities of one prompt, filled chunk by chunk.

    chosen: keep those of the given tokens only, else all of the vocabulary. Row i of the full form is the
    distribution of the token after ids[: i + 1]; value i of the chosen form is that of ids[i] given ids[:i],
    NaN for the first, which nothing precedes.
    """

    def __init__(self, ids: list[int], vocabulary: int, *, chosen: bool) -> None:
        self._ids = np.array(ids, np.int64)
        self._chosen = chosen
        self._shape = (len(ids),) if chosen else (len(ids), vocabulary)
        self.values = np.empty(0, np.float32)

    def add(self, start: int, logits: Float32) -> None:
        """Take in the logits of the tokens at positions start, start + 1, ..."""
        if start == 0:  # not before it is clear that the prompt can be served
            self.values = np.full(self._shape, np.nan, np.float32)
        scores = log_softmax(logits)
        if not self._chosen:
            self.values[start : start + len(scores)] = scores
            return
        following = self._ids[start + 1 : start + 1 + len(scores)]
        self.values[start + 1 : start + 1 + len(following)] = scores[np.arange(len(following)), following]
