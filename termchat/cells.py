"""How many cells text takes in a terminal, and where it may be cut.

Rich measures text by Unicode's tables, and Textual with it. This module puts two things right, for them too:
a character that is drawn as a sign (see `sanitize`) takes the sign's cell, and a joiner swallows what follows
it only between emoji; between letters the next letter is drawn as well. And where the terminal draws
characters of ambiguous width two cells wide, they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache

import rich.cells
from rich._unicode_data import load as load_table

from .ambiguous import is_ambiguous
from .graphemes import graphemes
from .sanitize import visible

_JOINER, _WIDE_FORM, _FLAG = "\u200d", "\ufe0f", "\U0001f3f4"
_EMOJI = re.compile("[\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]")
_TAG = re.compile("[\U000e0020-\U000e007f]")
_SPECIAL = re.compile("[\u200d\ufe0f\U000e0020-\U000e007f]")
_size_by_table = rich.cells.get_character_cell_size
_is_single = rich.cells._is_single_cell_widths  # Rich's short cut, which takes Greek for one cell wide
_ambiguous_cells = 1  # of the one terminal that this process draws on

Span = tuple[int, int, int]
"""Where a grapheme begins and ends in a text, and its cells."""


@lru_cache(4096)
def character_cells(character: str, unicode_version: str = "auto") -> int:
    """Return the cells of a character by itself: 0, 1 or 2."""
    sign = visible(character)
    cells = _size_by_table(sign, unicode_version)
    return _ambiguous_cells if cells == 1 and is_ambiguous(sign) else cells


def split_graphemes(text: str, unicode_version: str = "auto") -> tuple[list[Span], int]:
    """Return what must not be cut in a text, in order and without gaps, and the cells of it all."""
    starts = graphemes(text)
    ends = [*starts[1:], len(text)]
    spans = [
        (start, end, _joined_cells(text[start:end], unicode_version))
        for start, end in zip(starts, ends, strict=False)
    ]
    return spans, sum(cells for _, _, cells in spans)


def _joined_cells(text: str, unicode_version: str) -> int:
    """Return the cells of a text in which joiners, wide forms and tags of flags may be."""
    if len(text) == 1:
        return character_cells(text, unicode_version)
    narrow_to_wide = load_table(unicode_version).narrow_to_wide
    total, measured = 0, ""  # the last character that had cells, if it was one
    emoji = joins = False  # the last character that is seen is an emoji; a joiner came after it
    for character in text:
        if character == _WIDE_FORM:
            total, measured = total + (measured in narrow_to_wide), ""
            continue
        is_emoji = _EMOJI.match(character) is not None
        cells = character_cells(character, unicode_version)
        if (joins and emoji and is_emoji) or (text[0] == _FLAG and _TAG.match(character)):
            cells = 0
        elif cells:
            measured = character if cells == 1 else ""
        total += cells
        joins = character == _JOINER
        emoji = emoji if joins else is_emoji
    return total


def _cell_len(text: str, unicode_version: str = "auto") -> int:
    if _SPECIAL.search(text):
        return split_graphemes(text, unicode_version)[1]
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(character_cells(character, unicode_version) for character in text)


@lru_cache(4096)
def _cell_len_of_short(text: str, unicode_version: str = "auto") -> int:
    return _cell_len(text, unicode_version)


def cell_len(text: str, unicode_version: str = "auto") -> int:
    """Return the cells of a text."""
    short = len(text) < 512
    return _cell_len_of_short(text, unicode_version) if short else _cell_len(text, unicode_version)


def fit(text: str, width: int) -> str:
    """Return exactly `width` cells of a text of one line, with an ellipsis where something was left out."""
    if (cells := cell_len(text)) <= width:
        return text + " " * (width - cells)
    if width < 1:
        return ""
    more = "…" if cell_len("…") == 1 else "."
    end = used = 0
    for _, stop, cells in split_graphemes(text)[0]:
        if used + cells > width - 1:
            break
        end, used = stop, used + cells
    return f"{text[:end]}{more}" + " " * (width - 1 - used)


def columns(rows: Iterable[Iterable[str]], gap: str = "  ") -> list[str]:
    """Return rows of a table as lines whose columns are aligned."""
    table = [list(row) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    padded = [[fit(cell, width) for cell, width in zip(row, widths, strict=True)] for row in table]
    return [gap.join(row).rstrip() for row in padded]


def ambiguous_cells() -> int:
    """Return the cells of a character of ambiguous width."""
    return _ambiguous_cells


def count_ambiguous(cells: int) -> None:
    """Measure characters of ambiguous width so from now on; what was measured before is to be made anew."""
    global _ambiguous_cells
    from rich.segment import Segment

    _ambiguous_cells = cells
    _teach("_is_single_cell_widths", _is_single if cells == 1 else _is_ascii)
    _teach("get_character_cell_size", character_cells)
    for measured in (character_cells, _cell_len_of_short, rich.cells.cached_cell_len, Segment._split_cells):
        measured.cache_clear()


def _is_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _teach(name: str, function: Callable[..., object]) -> None:
    """Put a function of Rich's measures in its place, also where it was imported by its name."""
    setattr(rich.cells, name, function)
    importers = map(sys.modules.get, ("rich.segment", "textual._wrap", "textual.widgets._input"))
    for module in importers:
        if hasattr(module, name):
            setattr(module, name, function)


def _teach_rich() -> None:
    """Let Rich and Textual measure as we do; what else they have imported by name calls these by name."""
    _teach("get_character_cell_size", character_cells)
    _teach("split_graphemes", split_graphemes)
    _teach("_cell_len", _cell_len)
    rich.cells.cached_cell_len.cache_clear()


_teach_rich()
