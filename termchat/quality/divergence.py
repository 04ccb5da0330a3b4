"""How far two models' distributions of the next token are apart, position by position and in all.

Kullback-Leibler divergence of the one that is measured from the one it is measured against, in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]
"""Log-probabilities [tokens, vocabulary] of the token that follows each."""

VERDICTS = (
    (0.0, "no difference at all"),
    (0.004, "as good as the same: no reader would tell them apart"),
    (0.02, "very close: differences are rare and small"),
    (0.06, "close: some replies are worded differently, hardly any are worse"),
    (0.2, "a noticeable loss: replies are worse now and then"),
    (float("inf"), "a heavy loss: replies are often worse, or wrong"),
)
"""What a mean divergence up to so many nats means, by how well-known quantizations of the same models fare:
about 0.001 for 8 bits, 0.01 for 5, 0.03 for 4, 0.1 for 3, and more than 0.3 for 2.
"""

HEAVY_TAIL = 10
"""So many times the mean, and a loss that is rare still shows: the verdict is one step worse."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Figures of a text. same_best: share of positions at which both hold the same token likeliest.

    perplexity, against_perplexity: of the text; None where no token has one before it.
    """

    tokens: int
    kl_mean: float
    kl_p99: float
    kl_max: float
    same_best: float
    perplexity: float | None
    against_perplexity: float | None

    @property
    def verdict(self) -> str:
        """The figures in words."""
        worse = next(i for i, (limit, _) in enumerate(VERDICTS) if self.kl_mean <= limit)
        if 0 < worse < len(VERDICTS) - 2 and self.kl_p99 > HEAVY_TAIL * VERDICTS[worse][0]:
            worse += 1
        return VERDICTS[worse][1]


@dataclass(frozen=True, slots=True)
class Positions:
    """What is kept of each position.

    divergence, same_best: [tokens]. losses: [tokens, 2], of the token that follows, for the measured model
    and for the other; NaN where a window ends.
    """

    divergence: NDArray[np.float64]
    same_best: NDArray[np.bool_]
    losses: NDArray[np.float64]

    @classmethod
    def of(cls, ids: Sequence[int], measured: Scores, against: Scores) -> Positions:
        """Positions of a window, row by row: a whole table in float64 would be twice as large as both."""
        count = len(ids)
        divergence, same = np.empty(count), np.empty(count, np.bool_)
        losses = np.full((count, 2), np.nan)
        for row, (q, p) in enumerate(zip(measured, against, strict=True)):
            difference = p.astype(np.float64) - q
            # Rounding alone could make it negative.
            divergence[row] = max(0.0, float(np.exp(p, dtype=np.float64) @ difference))
            same[row] = p.argmax() == q.argmax()
            if row + 1 < count:
                losses[row] = -q[ids[row + 1]], -p[ids[row + 1]]
        return cls(divergence, same, losses)

    def summary(self) -> Divergence:
        """Figures of these positions, of which there is at least one."""
        known = self.losses[~np.isnan(self.losses[:, 0])]
        perplexities = np.exp(known.mean(axis=0)).tolist() if len(known) else (None, None)
        return Divergence(
            len(self.divergence),
            float(self.divergence.mean()),
            float(np.quantile(self.divergence, 0.99)),
            float(self.divergence.max()),
            float(self.same_best.mean()),
            *perplexities,
        )


def joined(parts: Sequence[Positions]) -> Positions:
    """Positions of several windows or texts as one."""
    names = [field.name for field in fields(Positions)]
    return Positions(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
