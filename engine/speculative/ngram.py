"""Drafts without a model: a reply often goes on as the conversation did after the same words.

The idea is prompt lookup decoding (A. Saxena, 2023) and the n-gram drafts of arXiv 2304.04487. Here an index
is kept while tokens come, so a step costs the same in a long conversation as in a short one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Tokens
from weakref import WeakKeyDictionary

import numpy as np

from ..sequence import Sequence
from .drafter import Proposal

LONG, SHORT = 4, 2
"""Lengths of the n-grams that are looked up, the long one first."""

REACH = 16
"""How far behind a place where the reply left the text it followed it may come back to it."""

SURE = 8
"""A match of so many tokens is followed without a look at others; longer ones are not told apart."""

_BULK = 64
_LEAST_BITS = 8
_MASK = (1 << 64) - 1
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
_NOTHING = Proposal(())


class NgramIndex:
    """Where the n-grams of one growing text last stood, and the place in it that its end repeats.

    Two tables of positions by hash, each with at least four places a token. A later n-gram of the same hash
    takes the place of an earlier one, and what is found is compared with the text: a collision costs a guess,
    nothing else. 96 bytes a token at most.
    """

    __slots__ = ("_bits", "_broken", "_ends", "_indexed", "_left", "_long", "_matched", "_short", "_source")

    def __init__(self) -> None:
        self._bits = 0
        self._long, self._short = array("i"), array("i")  # the position after an n-gram; 0 is none
        self._indexed = 0  # n-grams that end before this position are in the tables
        self._ends = 0, 0  # the places in the tables of the n-grams that end there
        self._source = 0  # the text's end goes on as the text does from here; 0: nobody knows
        self._matched = 0  # so many tokens before both are equal; what is over SURE may not be counted
        self._broken = self._left = 0  # where the reply left what it followed, and its place in the reply

    def propose(self, tokens: array[int], most: int) -> Proposal:
        """How the text may go on, by at most so many tokens. It must begin with the text of the last call."""
        if self._source:
            self._follow(tokens)
        self._add(tokens)
        if self._matched < SURE:
            self._search(tokens)
        source, count = self._source, len(tokens)
        if not source:
            return _NOTHING
        drafts = tokens[source : source + most]
        for ahead in range(len(drafts), most):  # the text repeats itself: so does the guess
            drafts.append(drafts[ahead - (count - source)])
        matched = self._matched
        return Proposal(drafts, 0 if matched < SHORT else 1 if matched < LONG else 2 if matched < SURE else 3)

    def _follow(self, tokens: array[int]) -> None:
        """Go along with the new tokens where the match foresaw them."""
        source = self._source
        for place in range(self._indexed, len(tokens)):
            if tokens[source] != tokens[place]:
                if self._matched >= LONG:
                    self._broken, self._left = source, place
                self._source = self._matched = 0
                return
            source += 1
            self._matched += 1
        self._source = source

    def _add(self, tokens: array[int]) -> None:
        """Index the n-grams that a token has come after."""
        count, start = len(tokens), self._indexed
        if 4 * count > 1 << self._bits:
            self._bits = max(_LEAST_BITS, (6 * count).bit_length())
            self._long = array("i", [0]) * (1 << self._bits)
            self._short = array("i", [0]) * (1 << self._bits)
            start = 0
        if count - start > _BULK or not start:
            self._add_many(tokens, start)
            self._ends = _places(tokens, count, 64 - self._bits)
        else:
            for place in range(start, count):
                short, long = self._ends
                self._short[short] = self._long[long] = place
                self._ends = _places(tokens, place + 1, 64 - self._bits)
        self._indexed = count

    def _add_many(self, tokens: array[int], start: int) -> None:
        """Index the n-grams that end before the positions from `start` on."""
        ids = np.frombuffer(tokens, np.int32).astype(np.uint64)
        for table, length in ((self._short, SHORT), (self._long, LONG)):
            first = max(start, length)
            if first >= len(ids):
                continue
            keys = np.zeros(len(ids) - first, np.uint64)
            for back in range(length, 0, -1):
                keys += ids[first - back : len(ids) - back] * np.uint64(_FACTORS[-back])
            places = keys >> np.uint64(64 - self._bits)
            np.frombuffer(table, np.int32)[places] = np.arange(first, len(ids), dtype=np.int32)

    def _search(self, tokens: array[int]) -> None:
        """Look for a longer match than the one that is followed, if any is."""
        count, (short, long) = len(tokens), self._ends
        found = self._short[short]
        if found >= SHORT:  # else nothing longer is found either
            longer, matched = self._long[long], self._matched
            if longer >= LONG > matched and tokens[longer - LONG : longer] == tokens[count - LONG :]:
                self._source, self._matched = longer, LONG + _equal(tokens, longer, LONG)
                return
            if matched < SHORT and tokens[found - SHORT : found] == tokens[count - SHORT :]:
                self._source, self._matched = found, SHORT + _equal(tokens, found, SHORT)
                return
        if self._source == 0 and self._broken and count - self._left <= REACH:
            # Something was put in place of something else: the reply may go on behind that.
            try:
                end = min(self._broken + REACH, count - 1)
                self._source = 1 + tokens.index(tokens[-1], self._broken, end)
            except ValueError:
                return
            self._matched = 1


def _places(tokens: array[int], end: int, shift: int) -> tuple[int, int]:
    """Where the tables have the short and the long n-gram before `end`. Written out: each token needs it."""
    window = tokens[end - LONG : end] if end >= LONG else (*[0] * (LONG - end), *tokens[:end])
    first, second, third, fourth = window
    short = third * _FACTORS[2] + fourth * _FACTORS[3]
    long = first * _FACTORS[0] + second * _FACTORS[1] + short
    return (short & _MASK) >> shift, (long & _MASK) >> shift


def _equal(tokens: Tokens[int], end: int, known: int) -> int:
    """How many tokens before the last `known` ones of tokens[:end] and of all are equal, too, up to SURE."""
    back = known + 1
    while back <= SURE and back <= end and tokens[end - back] == tokens[-back]:
        back += 1
    return back - 1 - known


class NgramDrafter:
    """Drafts from the tokens of each conversation itself, prompt and reply."""

    name = "ngram"

    def __init__(self) -> None:
        self._indexes: WeakKeyDictionary[Sequence, NgramIndex] = WeakKeyDictionary()

    def propose(self, sequences: list[Sequence], most: int) -> list[Proposal]:
        """See `Drafter`. The first call for a sequence reads its prompt, later ones what has come since."""
        found = []
        for sequence in sequences:
            index = self._indexes.get(sequence)
            if index is None:
                index = self._indexes[sequence] = NgramIndex()
            found.append(index.propose(sequence.tokens, most))
        return found
