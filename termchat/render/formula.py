r"""Formulas in TeX, `\(…\)`, `\[…\]`, `$…$` and `$$…$$`: where they are, so that they are shown as written.

Markdown would take their backslashes and underscores for its own. A dollar sign begins a formula by Pandoc's
rule: no space after the first, none before the last, no digit after that; and sums of money are none.
"""

from __future__ import annotations

import re
from typing import Any, cast

from markdown_it.rules_inline import StateInline

OPEN = -1
"""In place of the end of a formula that is not there yet."""

_CLOSING = {"\\(": "\\)", "\\[": "\\]", "$$": "$$", "$": "$"}
_DISPLAYED = {"\\[": "\\]", "$$": "$$"}
_MARK = re.compile(r"\\|\$+|`+")
_LONGEST_SUM = 200  # characters of a formula that begins with a number, as sums of money do, too
_WORD = re.compile(r"\s[A-Za-z]{2,}")


def formula_end(text: str, start: int, stop: int) -> int | None:
    """Return where the formula at `start` ends: OPEN if not before `stop`, None if none begins."""
    dollars = 0
    while start + dollars < stop and text[start + dollars] == "$":
        dollars += 1
    opening = text[start : start + max(2, dollars)] if dollars != 1 else "$"
    if opening not in _CLOSING or (dollars and text[start - 1 : start].isalnum()):
        return None
    begin = start + len(opening)
    if opening == "$" and (begin >= stop or text[begin].isspace()):
        return None
    if opening == "$" and text[begin].isdigit():
        stop = min(stop, begin + _LONGEST_SUM)
    at = begin
    while found := _MARK.search(text, at, stop):
        mark, at = found.group(), found.end()
        if mark == "\\":
            if text[found.start() : found.start() + 2] == _CLOSING[opening]:
                return at + 1
            at += 1
        elif mark[0] == "`":
            at = _after_code(text, at, stop, mark)
        elif mark == opening and found.start() > begin and _closes(text, begin, found.start(), at, stop):
            return at
    return OPEN


def _after_code(text: str, at: int, stop: int, ticks: str) -> int:
    """Return where the code span ends that begins before `at`; `at` if it is none."""
    found = re.compile(f"(?<!`){ticks}(?!`)").search(text, at, stop)
    return found.end() if found else at


def _closes(text: str, begin: int, end: int, after: int, stop: int) -> bool:
    """Whether dollar signs at `end` close the formula whose inside begins at `begin`."""
    if text[after - 2 : after] == "$$" and after - end == 2:
        return bool(text[begin:end].strip())
    money = text[begin].isdigit() and _WORD.search(text, begin, end)
    return not text[end - 1].isspace() and not text[after : min(after + 1, stop)].isalnum() and not money


def formula(state: StateInline, silent: bool) -> bool:
    """Take in a formula; a rule of markdown-it's inline parser.

    One that is not closed is none, but an empty token `formula_open` tells where it may begin: its end may be
    still to come.
    """
    src, pos, stop = state.src, state.pos, state.posMax
    if src[pos] not in "$\\":
        return False
    opening = "$" if src[pos] == "$" and not src.startswith("$$", pos) else src[pos : pos + 2]
    unclosed: set[str] = cast("dict[str, Any]", state.env).setdefault("unclosed", set())
    end = OPEN if opening in unclosed else formula_end(src, pos, stop)
    if end == OPEN and stop == len(src) and not src[pos + 1 : pos + 2].isdigit():
        unclosed.add(opening)  # none that begins later is closed either
    if end is None or (end == OPEN and silent):
        return False
    if end == OPEN:
        state.push("formula_open", "", 0).meta = {"at": pos if opening != "$" else None}
        return False
    if not silent:
        state.push("formula", "", 0).content = src[pos:end]
    state.pos = end
    return True


def open_formula(line: str, closing: str = "") -> str:
    """Return what closes the displayed formula that is open after a line, "" if none is.

    closing: the same for the line before. Only a formula that begins or ends a line opens one: its lines are
    not looked at for what else they might be.
    """
    if closing:
        return "" if closing in line else closing
    line = line.strip(" \t")
    for opening, closing in _DISPLAYED.items():
        if line.startswith(opening) and closing not in line[2:]:
            return closing
        if line.endswith(opening) and line.count(opening) % 2 and not line.endswith(f"\\{opening}"):
            return closing
    return ""
