"""Where the characters of a text came from: typed, pasted, or put back (a draft, an undo, an old prompt)."""

from __future__ import annotations

from typing import Literal

Source = Literal["typed", "pasted", "back"]

_CODES: dict[Source, bytes] = {"typed": b"t", "pasted": b"p", "back": b"b"}


def all_from(source: Source, length: int) -> bytes:
    """The sources of so many characters that came together."""
    return _CODES[source] * length


def source_at(sources: bytes, place: int) -> Source:
    """The source of one character."""
    code = sources[place : place + 1]
    return next(source for source, its in _CODES.items() if its == code)


class Origin:
    """Follows a text through its changes. sources: one code for each of its characters."""

    def __init__(self) -> None:
        self._text = ""
        self.sources = b""

    def reset(self, text: str, sources: bytes) -> None:
        """Another text, with its sources."""
        assert len(sources) == len(text), "each character has one"
        self._text, self.sources = text, sources

    def update(self, text: str, source: Source) -> None:
        """The text as it is after one change; what is new in it came from `source`."""
        before = self._text
        if text == before:
            return
        start = _shared(before, text, min(len(before), len(text)))
        end = _shared(before[::-1], text[::-1], min(len(before), len(text)) - start)
        new = all_from(source, len(text) - start - end)
        self.sources = self.sources[:start] + new + self.sources[len(before) - end :]
        self._text = text


def _shared(a: str, b: str, most: int) -> int:
    """How many characters at the beginning are the same, at most `most`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
