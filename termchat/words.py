"""Words as people point at them and look for them."""

from __future__ import annotations

import re
import unicodedata

_ROOT = r"(?:~|\.{1,2})?/\.?(?=\w)"  # what a path begins with
_WORD = re.compile(rf"(?:{_ROOT})?\w(?:[\w\-./~:@%+#?&=]*[\w/])?|(?:(?!{_ROOT})[^\w\s])+|\s+")


def word_at(text: str, at: int) -> tuple[int, int]:
    """From where to where the word at a place goes: also a path or an address, or a run of other signs or of
    blanks. Behind the text there is none.
    """
    words = (word.span() for word in _WORD.finditer(text))
    return next(((start, end) for start, end in words if start <= at < end), (at, at))


def folded(text: str) -> str:
    """What a text has in common with those that a reader takes for the same: in small or capital letters, and
    with accents that are part of a letter or behind it, as keyboards and some systems' file names have them.
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def holds(text: str, query: str) -> bool:
    """Whether every word of a query is in a text."""
    whole = folded(text)
    return all(word in whole for word in folded(query).split())


def spellings(word: str) -> list[str]:
    """A word as it may be stored by whoever wrote it (see `folded`), the shortest first."""
    forms = {unicodedata.normalize(form, word) for form in ("NFC", "NFD", "NFKC", "NFKD")}
    return sorted({word} | forms, key=len)
