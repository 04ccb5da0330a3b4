"""What ranks exchange while they compute: sums, columns side by side, and rows for the next stage.

Sums are made here, of what all ranks gave, in the order of the ranks: what a library adds up in another order
for another size would make a row's bits depend on its neighbours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from .shares import Split


class Group(ABC):
    """A rank among the others. All ranks of a stage call the same methods in the same order."""

    def __init__(self, split: Split, rank: int) -> None:
        self.split = split
        self.stage, self.rank = split.place(rank)

    def sum(self, x: Tensor) -> Tensor:
        """The sum of what the ranks of the stage have, in their order; the same bits on each of them."""
        if not x.numel():
            return x
        total, *others = self.gather(x.contiguous())
        for other in others:
            total = total + other
        return total

    def columns(self, x: Tensor, places: Sequence[range]) -> Tensor:
        """What the ranks of the stage have, in the columns that each has -> [rows, all columns]."""
        if not x.numel():
            return x.new_empty(len(x), places[-1].stop)
        return _side_by_side(self.gather(_padded(x, places)), places)

    def columns_at_first(self, x: Tensor, places: Sequence[range]) -> Tensor | None:
        """As `columns`, at the first rank of the stage; None at the others."""
        if not x.numel():
            return x.new_empty(len(x), places[-1].stop) if self.rank == 0 else None
        parts = self.gather_at_first(_padded(x, places))
        return None if parts is None else _side_by_side(parts, places)

    @abstractmethod
    def gather(self, x: Tensor) -> list[Tensor]:
        """What each rank of the stage has, of one shape and contiguous."""

    @abstractmethod
    def gather_at_first(self, x: Tensor) -> list[Tensor] | None:
        """The same at the stage's first rank, None at the others."""

    @abstractmethod
    def send(self, x: Tensor) -> None:
        """Begin to send rows to the next stage. `sent` waits for it."""

    @abstractmethod
    def receive(self, rows: int, columns: int) -> Tensor:
        """Rows that the stage before has sent, float32."""

    @abstractmethod
    def sent(self) -> None:
        """Wait until all has been sent."""


def _padded(x: Tensor, places: Sequence[range]) -> Tensor:
    """With as many columns as the widest part has."""
    return pad(x, (0, max(map(len, places)) - x.shape[1])).contiguous()


def _side_by_side(parts: Sequence[Tensor], places: Sequence[range]) -> Tensor:
    """Ranks may hold the same columns: those of a key head that several read."""
    whole = torch.empty(len(parts[0]), places[-1].stop, device=parts[0].device)
    for part, place in zip(parts, places, strict=True):
        whole[:, place.start : place.stop] = part[:, : len(place)]
    return whole
