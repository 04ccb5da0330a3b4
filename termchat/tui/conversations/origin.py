"""Where the characters of a text came from: typed, pasted, or put back (a draft, an undo, an old prompt)."""

from __future__ import annotations

from typing import Literal

Origin = Literal["typed", "pasted", "back"]

_CODES: dict[Origin, bytes] = {"typed": b"t", "pasted": b"p", "back": b"b"}


def all_from(origin: Origin, length: int) -> bytes:
    """The origins of so many characters that came together."""
    return _CODES[origin] * length


def origin_at(origins: bytes, place: int) -> Origin:
    """The origin of one character."""
    code = origins[place : place + 1]
    return next(origin for origin, its in _CODES.items() if its == code)


class Origins:
    """Follows a text through its changes. codes: one for each of its characters."""

    def __init__(self) -> None:
        self._text = ""
        self.codes = b""

    def reset(self, text: str, origins: bytes) -> None:
        """Another text, with its origins."""
        assert len(origins) == len(text), "each character has one"
        self._text, self.codes = text, origins

    def update(self, text: str, origin: Origin) -> None:
        """The text as it is after one change; what is new in it came from `origin`."""
        before = self._text
        if text == before:
            return
        start = _shared(before, text, min(len(before), len(text)))
        end = _shared(before[::-1], text[::-1], min(len(before), len(text)) - start)
        new = all_from(origin, len(text) - start - end)
        self.codes = self.codes[:start] + new + self.codes[len(before) - end :]
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
