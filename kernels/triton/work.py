"""The work of attention: which rows of a step share keys, and who computes what, decided on the host.

Query heads that share a key head are stacked below each other: row r of a run of rows of one sequence, head h
of `sharing`, is stacked row r * sharing + h. A tile is TILE stacked rows of a run at most. Keys go in splits
of SPLIT positions, counted from 0. An item of work is a tile and some of its keys: all of them, or, where few
rows share many keys, one split; then a merge adds up the splits of the tile, in order. Both ways do the same
operations in the same order, so a row's bits don't depend on which one is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Int32
from ..step import Step

TILE = 64
"""Stacked rows of a tile: as many as the matrix units of a GPU like, for one row as for many, as the units
could add up in another order for another number.
"""

SPLIT = 512
"""Keys of a split."""

FEW_ROWS = 16
"""Runs of so many rows, replies with their drafts, are cut into splits; longer ones are work enough."""

ITEM = 8
"""Numbers of an item, and of a merge."""


class Work(NamedTuple):
    """int32 lists, ITEM numbers a line.

    items: row (of the step, first of the run), begin (stacked row in the run), count (of stacked rows),
    sequence, first key, end of the keys, partial (first row of partial results, -1: the result itself), 0.
    merges: row, begin, count, first partial, pieces, 0, 0, 0: those of piece i begin count * i further on.
    """

    items: Int32
    merges: Int32


def work_of(step: Step, sharing: int, window: int | None, partial_rows: int) -> Work:
    """The work of a step in layers of so many query heads to a key head, with this window.

    partial_rows: room for partial results, in stacked rows. Longest first, as long as there is room.
    """
    starts = np.flatnonzero(np.diff(step.sequences, prepend=-1))
    rows = np.diff(starts, append=len(step.sequences))
    tiles = -(-rows * sharing // TILE)
    run = np.repeat(np.arange(len(starts)), tiles)
    begin = (np.arange(len(run)) - np.repeat(np.cumsum(tiles) - tiles, tiles)) * TILE
    row, count = starts[run], np.minimum(rows[run] * sharing - begin, TILE)
    end = step.positions[row + (begin + count - 1) // sharing].astype(np.int64) + 1
    first = np.zeros_like(end)
    if window is not None:
        first = np.maximum(step.positions[row + begin // sharing].astype(np.int64) - window + 1, 0)
    sequence = step.sequences[row]
    first_split, end_split = first // SPLIT, -(-end // SPLIT)
    pieces = np.where(rows[run] <= FEW_ROWS, end_split - first_split, 1)
    order = np.argsort(-pieces, kind="stable")
    fits = np.cumsum((count * pieces)[order]) <= partial_rows
    pieces[order[~fits]] = 1

    tile = np.repeat(np.arange(len(run)), pieces)
    piece = np.arange(len(tile)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    cut = pieces > 1
    taken = np.where(cut, count * pieces, 0)
    partial = np.cumsum(taken) - taken
    split = first_split[tile] + piece
    items = np.zeros((len(tile), ITEM), np.int32)
    items[:, 0], items[:, 1], items[:, 2], items[:, 3] = row[tile], begin[tile], count[tile], sequence[tile]
    items[:, 4] = np.maximum(first[tile], split * SPLIT)
    items[:, 5] = np.where(cut[tile], np.minimum(end[tile], (split + 1) * SPLIT), end[tile])
    items[:, 6] = np.where(cut[tile], partial[tile] + piece * count[tile], -1)
    merges = np.zeros((int(cut.sum()), ITEM), np.int32)
    for column, values in enumerate((row, begin, count, partial, pieces)):
        merges[:, column] = values[cut]
    return Work(items, merges)
