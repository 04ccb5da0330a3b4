"""Where `*` and `~~` open and close between letters of scripts that are written without spaces.

CommonMark knows by spaces and punctuation on which side of a mark its text is; a mark between punctuation and
a letter is none. In Chinese, Japanese and Korean the punctuation belongs to what is emphasised and the next
letter follows at once (`**注意：**这`, `**한국어(Korean)**는`), so there a letter is a border, too, as in the
extension of many Markdown programs for these scripts (commonmark-spec, issue 650).
"""

from __future__ import annotations

import re

from markdown_it.common.utils import isWhiteSpace
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned

from .wrap import WIDE

_WIDE = re.compile(f"[{WIDE}]")


class EmphasisState(StateInline):
    """markdown-it's state of a text, with marks beside these scripts."""

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802
        """Return whether the marks at `start` can open and close, and how many there are."""
        found = super().scanDelims(start, canSplitWord)
        end = start + found.length
        before = self.src[start - 1] if start else " "
        after = self.src[end] if end < self.posMax else " "
        if not canSplitWord or not (_WIDE.match(before) or _WIDE.match(after)):
            return found
        return Scanned(not isWhiteSpace(ord(after)), not isWhiteSpace(ord(before)), found.length)
