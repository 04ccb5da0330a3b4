"""Escape codes in text from outside, taken out: nothing in it can move, style or script the terminal.

This is done where text leaves for a terminal, and nowhere before: what is stored, copied and piped stays as
it was. Each unsafe character is shown as one sign of its own, so an escape sequence is seen, inert and
complete, and every character of the shown text stands for the one at its place. Invisible characters that
mean something (joiners, direction marks, variation selectors, the tags of a flag) are no danger and stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_CONTROL_PICTURES = 0x2400  # U+2400 SYMBOL FOR NULL, in the order of the C0 codes
_DELETE_PICTURE = "\u2421"
_REPLACEMENT = "\ufffd"

# C0 without tab and newline; DEL and C1; lone surrogates, which cannot be written as UTF-8.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
# Line and paragraph separators; embeddings, overrides and isolates (they reorder what follows on the
# terminal's line: CVE-2021-42574); deprecated formats; interlinear annotation.
_FORMATS = "\u2028\u2029\u202a-\u202e\u2066-\u206f\ufff9-\ufffb"
# Tags spell a region behind a black flag; anywhere else they are letters that nobody sees.
_TAGS = "\U000e0001\U000e0020-\U000e007f"
_FLAG = "\U0001f3f4[\U000e0020-\U000e007f]+"

_UNSAFE = re.compile(f"({_FLAG})|[{_CONTROLS}{_FORMATS}{_TAGS}]")
_CONTROL = re.compile(f"[{_CONTROLS}]")
_OTHER = re.compile("[^\x00-\x7f]")
_BLANK = re.compile(r"\s")
_BLANK_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs")
_FILLERS = "\u034f\u115f\u1160\u2800\u3164\ufe0e\ufe0f\uffa0"
_LONGEST_FLAG = 64
_OPEN_FLAG = re.compile(f"(?:\U0001f3f4|{_FLAG})\\Z")


def _sign(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    if code == 0x7F:
        return _DELETE_PICTURE
    return " " if code in (0x2028, 0x2029) else _REPLACEMENT


def _written(text: str, how: Callable[[str], str]) -> str:
    """Return text with each unsafe character written otherwise; the tags of a flag stay."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match[1] or how(match[0]), text)


def visible(text: str) -> str:
    """Return text of the same length in which unsafe characters, tab and newline aside, are signs."""
    return _written(text, _sign)


def line_ends(text: str) -> str:
    """Return text with newlines as its only line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def sanitize(text: str) -> str:
    """Return text as a terminal may get it: `visible`, with newlines as line ends."""
    return visible(line_ends(text))


def one_line(text: str) -> str:
    """Return text from files and arguments as part of a message of one line: unsafe characters as codes."""
    return _written(_BLANK.sub(" ", text.strip()), lambda char: f"\\x{ord(char):02x}")


def without_controls(text: str) -> str:
    """Return text for a title or a list, of the same length: a blank for all white space and each control."""
    return _BLANK_OR_CONTROL.sub(" ", text)


def is_blank(text: str) -> bool:
    """Whether there is nothing to see in a text: blanks, joiners, fillers and the like are all it has."""
    return all(char in _FILLERS or unicodedata.category(char) in _UNSEEN for char in text)


def show_controls(text: str) -> str:
    """Return text that came from a terminal as it can be edited: newlines, and signs for control characters.

    What only reorders text stays, as it belongs to the text.
    """
    return _CONTROL.sub(lambda match: _sign(match[0]), line_ends(text))


def escape_json(text: str, codec: str = "utf-8") -> str:
    """Return a JSON text with the same value that a terminal may get: unsafe characters as escapes, and those
    that its charset may lack.
    """

    def escaped(char: str) -> str:
        units = char.encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

    text = _written(text, escaped)
    return text if codec == "utf-8" else _OTHER.sub(lambda match: escaped(match[0]), text)


def escape(text: str) -> str:
    """Return text for a log: unsafe characters, line ends aside, as Python writes them."""
    return _written(text, lambda char: char.encode("unicode_escape").decode())


class LineEnds:
    """`line_ends` for text that comes in pieces: the joined result equals one call on the whole text."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """Return what is known of the text so far; a last carriage return waits for its line feed."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        return line_ends(text.removesuffix(self._held) if self._held else text)

    def finish(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return line_ends(held)


class Sanitizer(LineEnds):
    """`sanitize` for text that comes in pieces: the joined result equals one call on the whole text."""

    def __init__(self) -> None:
        super().__init__()
        self._flag = ""  # the beginning of a flag, whose tags may come

    def push(self, text: str) -> str:
        """Return the safe form of the text so far."""
        known = self._flag
        text = known + super().push(text)
        flag = _OPEN_FLAG.search(text, max(0, len(text) - _LONGEST_FLAG))
        self._flag = flag.group() if flag else ""
        return visible(text)[len(known) :]
