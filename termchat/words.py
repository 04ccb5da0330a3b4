"""Words as people point at them."""

from __future__ import annotations

import re

_ROOT = r"(?:~|\.{1,2})?/\.?(?=\w)"  # what a path begins with
_WORD = re.compile(rf"(?:{_ROOT})?\w(?:[\w\-./~:@%+#?&=]*[\w/])?|(?:(?!{_ROOT})[^\w\s])+|\s+")


def word_at(text: str, at: int) -> tuple[int, int]:
    """From where to where the word at a place goes: also a path or an address, or a run of other signs or of
    blanks. Behind the text there is none.
    """
    words = (word.span() for word in _WORD.finditer(text))
    return next(((start, end) for start, end in words if start <= at < end), (at, at))
