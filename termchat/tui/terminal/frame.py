"""A frame on its way to the terminal: rows written so that no width the terminal sees otherwise does harm.

Terminals disagree about the cells of joined emoji, flags, variation selectors, Indic scripts and whatever
Unicode has that is newer than they are. A row with such text is painted blank, then its text is written over
that, with the cursor put right after each emoji. After letters in dispute it is not put anywhere, as that
could be on letters before; but what is to the right of the row, where they may have run into, is drawn again.

On a terminal that draws characters of ambiguous width two cells wide (see `ambiguous`) the cursor is put
right after every character, and the signs that must be one cell wide are replaced by their stand-ins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor, CompositorUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from ...ambiguous import STAND_INS
from ...cells import ambiguous_cells, cell_len, split_graphemes

# Emoji of the planes and scripts below that are wide by themselves (Emoji_Presentation in Unicode's tables).
_WIDE_SYMBOLS = (
    "\u231a\u231b\u23e9-\u23ec\u23f0\u23f3\u25fd\u25fe\u2614\u2615\u2648-\u2653\u267f\u2693\u26a1\u26aa\u26ab"
    "\u26bd\u26be\u26c4\u26c5\u26ce\u26d4\u26ea\u26f2\u26f3\u26f5\u26fa\u26fd\u2705\u270a\u270b\u2728\u274c"
    "\u274e\u2753-\u2755\u2757\u2795-\u2797\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55"
)
# What every terminal gives the same cells: Latin, combining marks, Greek, Cyrillic, Hebrew, Arabic letters,
# punctuation, symbols, CJK.
_AGREED = (
    "\x00-\x7e\xa0-\xac\xae-\u052f\u05d0-\u05ea\u0620-\u064a\u1e00-\u1fff\u2010-\u2027\u202f-\u205e"
    "\u2070-\u209c\u20a0-\u20c0\u2100-\u2bff\u2e80-\u303e\u3041-\u3163\u3165-\ua4cf\uac00-\ud7a3\uf900-\ufaff"
    "\ufe30-\ufe6f\uff01-\uff9f\uffa1-\uffdc\uffe0-\uffe6\ufffd\U00020000-\U0003fffd"
)
_DISPUTED = re.compile(f"[^{_AGREED}]|[{_WIDE_SYMBOLS}]")
_EMOJI = re.compile(f"[\U0001f000-\U0001faff\ufe0f{_WIDE_SYMBOLS}]")


class Frame(CompositorUpdate):
    """What Textual would draw now, as the bytes for it."""

    def __init__(self, update: CompositorUpdate, compositor: Compositor) -> None:
        self._update = update
        self._compositor = compositor
        self._color_system = ColorSystem.TRUECOLOR

    def render_segments(self, console: Console) -> str:
        """Return the frame, control sequences included."""
        self._color_system = console._color_system or ColorSystem.TRUECOLOR
        if isinstance(self._update, LayoutUpdate):
            return self._layout(self._update, console)
        if isinstance(self._update, ChopsUpdate):
            written, disturbed = self._chops(self._update, console)
            if disturbed:
                self._compositor._dirty_regions.update(disturbed)
                rest = self._compositor.render_partial_update()
                written += self._chops(rest, console)[0] if rest is not None else ""
            return written
        return self._update.render_segments(console)

    def _layout(self, update: LayoutUpdate, console: Console) -> str:
        parts: list[str] = []
        for y, line in enumerate(update.strips, update.region.y):
            x = update.region.x
            parts.append(_place(x, y))
            for strip in line:
                text, agreed = self._strip(strip, x, console)
                parts.append(text)
                x += strip.cell_length
                if not agreed:
                    parts.append(_column(x))
        return "".join(parts)

    def _chops(self, update: ChopsUpdate, console: Console) -> tuple[str, list[Region]]:
        """Return the changed parts of rows, and what is to the right of those that may have run over."""
        parts: list[str] = []
        disturbed: list[Region] = []
        width = self._compositor.size.width
        for y, left, right in update.spans:
            end = None
            for stop, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if strip is None or x >= right or stop <= left:
                    continue
                if stop > right:
                    strip, stop = strip.crop(0, right - x), right
                text, agreed = self._strip(strip, x, console)
                parts += (_place(x, y), text)
                end = end if agreed else stop
            if end is not None and right < width:
                disturbed.append(Region(right, y, width - right, 1))
        return "".join(parts), disturbed

    def _strip(self, strip: Strip, x: int, console: Console) -> tuple[str, bool]:
        """Return a strip that begins in column `x`, and whether all terminals give it the same cells."""
        if ambiguous_cells() == 2:
            strip = Strip([Segment(text.translate(STAND_INS), style) for text, style, _ in strip])
        plain = strip.render(console)
        if _is_agreed(plain):
            return plain, True
        segments = list(strip)
        blank = self._styled((" " * cell_len(text), style) for text, style, _ in segments)
        return f"{blank}{_column(x)}{self._styled(_anchored(_without_end(segments), x))}", False

    def _styled(self, parts: Iterable[tuple[str, Style | None]]) -> str:
        return "".join(
            text if style is None else Strip.render_style(style, text, self._color_system)
            for text, style in parts
        )


def _is_agreed(text: str) -> bool:
    """Whether all terminals give a text the same cells."""
    return text.isascii() or not (ambiguous_cells() == 2 or _DISPUTED.search(text))


def _place(x: int, y: int) -> str:
    return f"\x1b[{y + 1};{x + 1}H"


def _column(x: int) -> str:
    return f"\x1b[{x + 1}G"


def _without_end(segments: list[Segment]) -> list[Segment]:
    """Return segments without the blanks they end in."""
    kept = segments[:]
    while kept and not kept[-1].text.strip(" "):
        kept.pop()
    if kept:
        text, style, control = kept[-1]
        kept[-1] = Segment(text.rstrip(" "), style, control)
    return kept


def _anchored(segments: Iterable[Segment], x: int) -> Iterator[tuple[str, Style | None]]:
    """Give segments that begin in column `x`, the cursor put right after each emoji while it is known."""
    known = True
    for text, style, _ in segments:
        if not known or _is_agreed(text):
            x += cell_len(text)
            yield text, style
            continue
        parts: list[str] = []
        for start, end, cells in split_graphemes(text)[0]:
            grapheme = text[start:end]
            x += cells
            parts.append(grapheme)
            if known and not _is_agreed(grapheme):
                known = not _DISPUTED.search(grapheme) or (cells == 2 and bool(_EMOJI.search(grapheme)))
                if known:
                    parts.append(_column(x))
        yield "".join(parts), style
