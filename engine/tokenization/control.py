"""Where a text holds control tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from os.path import commonprefix

MAX_TOKENS = 1 << 14
MAX_LENGTH = 1 << 10
MAX_TOTAL = 1 << 20
"""Characters of all tokens that are looked for in a text; the tables for it take 80 bytes for each."""


def _pattern(texts: list[str]) -> str:
    """A regular expression for the longest of these texts (sorted), common beginnings written once.

    Its speed depends on how the texts branch, not on how many there are.
    """
    branches = []
    for _, group in groupby(texts, key=lambda text: text[0]):
        alike = list(group)
        start = commonprefix(alike)
        rest = [text[len(start) :] for text in alike if text != start]
        tail = f"(?:{_pattern(rest)})" if rest else ""
        optional = "?" if rest and len(rest) < len(alike) else ""
        branches.append(re.escape(start) + tail + optional)
    return "|".join(branches)


def check_total(texts: Iterable[str]) -> None:
    """ValueError: looking for these texts would take too much memory."""
    if sum(map(len, texts)) > MAX_TOTAL:
        raise ValueError(f"the tokens to be found in a text have more than {MAX_TOTAL} characters in all")


class ControlTokens:
    """The control tokens of a vocabulary, by text.

    before, after: ids of the tokens that swallow the white space before or after them.
    Raises ValueError if there are too many, or too long ones.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        before: frozenset[int] = frozenset(),
        after: frozenset[int] = frozenset(),
    ) -> None:
        if len(ids) > MAX_TOKENS or any(len(text) > MAX_LENGTH for text in ids):
            raise ValueError(f"at most {MAX_TOKENS} control tokens of {MAX_LENGTH} characters are allowed")
        check_total(ids)
        self.ids = dict(ids)
        self._before = before
        self._after = after
        try:
            # A pattern that never matches stands for no tokens at all.
            self._search = re.compile(_pattern(sorted(ids)) or r"(?!)")
        except RecursionError:
            raise ValueError("the control tokens are too deeply nested") from None

    def find(self, text: str) -> set[str]:
        """The control tokens a text holds, found from the left, the longest at each place."""
        return set(self._search.findall(text))

    def hide(self, text: str, stand_ins: Mapping[str, str]) -> str:
        """The text with each of its control tokens replaced."""
        return self._search.sub(lambda match: stand_ins[match[0]], text)

    def split(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Pieces of plain text, each with the control token that follows it; None after the last piece."""
        position, swallow = 0, False
        for match in self._search.finditer(text):
            token = self.ids[match[0]]
            piece = text[position : match.start()]
            piece = piece.lstrip() if swallow else piece
            yield piece.rstrip() if token in self._before else piece, token
            position, swallow = match.end(), token in self._after
        yield text[position:].lstrip() if swallow else text[position:], None
