"""What people see as one character: a letter with its marks, a joined emoji, a flag.

The rules of Unicode's annex 29, as far as they can be told without its tables: marks and variation selectors
belong to what is before them, a joiner also joins what is after it, and two regional indicators are a flag.
"""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_LINKERS = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d"  # viramas that make one cluster of two consonants
_MORE_JAMO = frozenset(map(chr, (*range(0xA960, 0xA97D), *range(0xD7B0, 0xD7FC))))
_PICTURES = (0x2190, 0x1FAFF)


def graphemes(text: str) -> list[int]:
    """Where each of them begins."""
    starts: list[int] = []
    flag = False  # the last one is half a flag
    for index, character in enumerate(text):
        before = text[index - 1] if index else ""
        indicator = 0x1F1E6 <= ord(character) <= 0x1F1FF
        if not index or not (
            _extends(character)
            or (_is_jamo(character) and _is_hangul(before) and not (_leads(character) and not _leads(before)))
            or (before == _JOINER and _PICTURES[0] <= ord(character) <= _PICTURES[1])
            or (before in _LINKERS and unicodedata.category(character) == "Lo")
            or (before == _JOINER and index > 1 and _is_virama(text[index - 2]))
            or (indicator and flag)
        ):
            starts.append(index)
            flag = indicator
        else:
            flag = flag and not indicator
    return starts


def grapheme_start(text: str) -> int:
    """Where the last one begins; 0 for none."""
    tail = text[-64:]
    starts = graphemes(tail)
    return len(text) - len(tail) + (starts[-1] if starts else 0)


def grapheme_end(text: str) -> int:
    """Where the first one ends."""
    starts = graphemes(text[:64])
    return starts[1] if len(starts) > 1 else len(text[:64])


def _extends(character: str) -> bool:
    """Whether a character belongs to the one before."""
    return (
        unicodedata.category(character) in ("Mn", "Me", "Mc")
        or character in (_JOINER, "\u200c")
        or 0x1F3FB <= ord(character) <= 0x1F3FF  # skin tones
        or 0xE0020 <= ord(character) <= 0xE007F  # tags of flags
    )


def _is_jamo(character: str) -> bool:
    """Whether it is a part of a Korean syllable, as names of files have them on some systems."""
    return "\u1100" <= character <= "\u11ff" or character in _MORE_JAMO


def _leads(character: str) -> bool:
    """Whether it is a part that a syllable begins with."""
    return "\u1100" <= character <= "\u115f" or "\ua960" <= character <= "\ua97c"


def _is_hangul(character: str) -> bool:
    return _is_jamo(character) or "\uac00" <= character <= "\ud7a3"


def _is_virama(character: str) -> bool:
    return unicodedata.combining(character) == 9
