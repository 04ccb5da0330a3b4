"""Words as people point at them."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w(?:[\w\-./~:@%+#?&=]*[\w/])?|[^\w\s]+|\s+")


def word_at(text: str, at: int) -> tuple[int, int]:
    """From where to where the word at a place goes: also a path or an address, or a run of other signs or of
    blanks. Behind the text there is none.
    """
    words = (word.span() for word in _WORD.finditer(text))
    return next(((start, end) for start, end in words if start <= at < end), (at, at))
