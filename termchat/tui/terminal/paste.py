"""A paste as a terminal marks it: from its first mark to its last, which may be late, doubled or lost.

It ends with its end mark. Another end mark right behind it shows that the first one was part of the pasted
text. Without one for `PASTE_SECONDS` the paste is given away as far as it came; its end is overdue then.
"""

from __future__ import annotations

from ...sanitize import show_controls

PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"

PASTE_SECONDS = 1.0
END_SECONDS, LONGEST_END_SECONDS = 0.03, 0.3
OVERDUE_SECONDS = 10.0


class Paste:
    """overdue: its end has not come: until when it is waited for."""

    def __init__(self, codec: str) -> None:
        self.overdue: float | None = None
        self._codec = codec
        self._data = bytearray()
        self._searched = 0  # for marks
        self._end: int | None = None  # if no other end mark follows
        self._end_came = 0.0

    @property
    def ended(self) -> bool:
        """Whether its end was seen, though another may follow."""
        return self._end is not None

    @property
    def pending(self) -> bool:
        """Whether something has come that is not given away."""
        return bool(self._data)

    def deadline(self, came: float) -> float | None:
        """When to give up waiting if nothing comes before. came: when something came last."""
        if self._end is not None:
            return min(came + END_SECONDS, self._end_came + LONGEST_END_SECONDS)
        return None if self.overdue is not None else came + PASTE_SECONDS

    def add(self, data: bytes, now: float) -> bool:
        """Take in what has come; whether it is over, as another one begins behind it."""
        self._data += data
        while True:
            end = self._data.find(PASTE_END, self._searched)
            begin = -1 if self._end is None else self._data.find(PASTE_BEGIN, self._searched)
            if begin >= 0 and (end < 0 or begin < end):
                return True
            if end < 0:
                break
            if self._end is None:
                self._end_came = now
            self._end, self._searched = end, end + len(PASTE_END)
        self._searched = max(self._searched, len(self._data) - len(PASTE_END) + 1)
        return False

    def close(self) -> tuple[str, bytes]:
        """What was pasted, and what came behind its end."""
        assert self._end is not None, "its end was seen"
        pasted = bytes(self._data[: self._end]).decode(self._codec, "replace")
        return lines(pasted), bytes(self._data[self._end + len(PASTE_END) :])

    def part(self, now: float) -> str:
        """The paste as far as it came; what may be the beginning of its end mark stays."""
        kept = next(n for n in range(len(PASTE_END) - 1, -1, -1) if self._data.endswith(PASTE_END[:n]))
        pasted = bytes(self._data[: len(self._data) - kept])
        del self._data[: len(pasted)]
        self._searched = 0
        self.overdue = now + OVERDUE_SECONDS
        return lines(pasted.decode(self._codec, "replace"))


def lines(text: str) -> str:
    """A pasted text with newlines as line ends, other control characters as visible signs, and no NUL."""
    return show_controls(text.replace("\0", ""))
