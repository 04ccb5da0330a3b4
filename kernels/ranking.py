"""The best tokens of each row, exactly: larger score first, lower id first among equals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .interface import Float32, Int32

Int64 = NDArray[np.int64]

_MIN_WIDTH = 4096
_GROUPS_PER_TOKEN = 8
"""Maxima compared for each token wanted: more of them cost time, and leave fewer survivors."""

_LOW = 0xFFFFFFFF


def rank_keys(scores: Float32, ids: NDArray[np.integer]) -> Int64:
    """One integer a token that compares as the rules do: the score's bits in order, then the id downwards."""
    bits = (scores + np.float32(0)).view(np.int32)  # adding 0 turns -0 into +0: they are equal scores
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.astype(np.int64) << 32) | (_LOW - ids.astype(np.int64))


def key_ids(keys: Int64) -> Int32:
    """The token ids in keys; -1 for NO_TOKEN."""
    return (_LOW - (keys & _LOW)).astype(np.int32)


def key_scores(keys: Int64) -> Float32:
    """The scores in keys; -inf for NO_TOKEN."""
    ordered = (keys >> 32).astype(np.int32)
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(np.float32)


NO_TOKEN = rank_keys(np.array([-np.inf], np.float32), np.array([_LOW]))[0]
"""Below the key of every token."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The k best tokens of each row, best first: ids int32 and scores float32 [rows, k].

    Forbidden tokens (-inf) are not among them: where fewer than k are left, -1 and -inf fill up. A row with
    NaN or +inf has none.
    """

    ids: Int32
    scores: Float32


def best_tokens(scores: Float32, k: int) -> Ranking:
    """The k best tokens of each row of C-contiguous scores [rows, vocabulary], k <= vocabulary."""
    groups = 1 << (_GROUPS_PER_TOKEN * k - 1).bit_length()
    width = max(groups, _MIN_WIDTH)
    keys = _all_keys(scores) if scores.shape[1] < 2 * width else _survivor_keys(scores, k, width, groups)
    count = keys.shape[1]
    if count > 2 * k:
        keys = np.partition(keys, count - k, axis=1)[:, count - k :]
    keys = np.sort(keys, axis=1)[:, ::-1][:, :k]
    found = key_scores(keys)
    return Ranking(np.where(found == -np.inf, np.int32(-1), key_ids(keys)), found)


def _all_keys(scores: Float32) -> Int64:
    keys = rank_keys(scores, np.arange(scores.shape[1]))
    keys[~(scores.max(axis=1) < np.inf)] = NO_TOKEN
    return keys


def _survivor_keys(scores: Float32, k: int, width: int, groups: int) -> Int64:
    """Keys [rows, >= k] of a few tokens, the k best among them.

    The ids are laid out in lines of `width`, and the columns are joined into groups. The k-th largest maximum
    of a group is a lower bound of the k-th largest score, so only the columns that reach it need a look.
    """
    rows, vocabulary = scores.shape
    lines, tail = divmod(vocabulary, width)
    body, rest = scores[:, : lines * width].reshape(rows, lines, width), scores[:, lines * width :]
    maxima = body.max(axis=1)
    if tail:
        np.maximum(maxima[:, :tail], rest, out=maxima[:, :tail])
    grouped = maxima.reshape(rows, -1, groups).max(axis=1)
    highest = np.partition(grouped, groups - k, axis=1)[:, groups - k :]
    floor = np.maximum(highest[:, 0], np.finfo(np.float32).min)  # at -inf all tokens would survive
    floor[~(highest.max(axis=1) < np.inf)] = np.nan  # nothing reaches NaN
    reached = np.flatnonzero(maxima >= floor[:, None])
    row, column = reached // width, reached % width
    found = body[row, :, column]
    if tail:
        last = np.where(column < tail, rest[row, np.minimum(column, tail - 1)], np.float32(-np.inf))
        found = np.column_stack((found, last))
    survivor = np.flatnonzero(found >= floor[row][:, None])
    place, line = np.divmod(survivor, found.shape[1])
    row, ids = row[place], line * width + column[place]
    counts = np.bincount(row, minlength=rows)
    place = np.arange(row.size) - (np.cumsum(counts) - counts)[row]
    keys = np.full((rows, max(k, counts.max())), NO_TOKEN)
    keys[row, place] = rank_keys(found.ravel()[survivor], ids)
    return keys
