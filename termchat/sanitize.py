"""Text from outside made safe to show: nothing in it can move, style or script the terminal.

Each control character is replaced by a visible one of its own, so an escape sequence is shown, inert and
complete, instead of disappearing. That is stateless except where a neighbour decides: CR LF, and the joiner
inside an emoji.
"""

from __future__ import annotations

import re

_CONTROL_PICTURES = 0x2400  # U+2400 SYMBOL FOR NULL, in the order of the C0 codes
_DELETE_PICTURE = "\u2421"
_REPLACEMENT = "\ufffd"

# C0 without tab and newline; DEL and C1; line and paragraph separators; embeddings, overrides and isolates
# (they reorder what follows on the terminal's line: CVE-2021-42574); interlinear annotation; lone
# surrogates (they cannot be written as UTF-8).
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]"
)
# A joiner makes the next character count as zero cells wide, which only holds between emoji. Elsewhere the
# terminal would draw more cells than we counted and the row would overflow.
_EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
_STRAY_JOINER = re.compile(f"(?<![{_EMOJI}\ufe0f])\u200d|\u200d(?![{_EMOJI}])")
_NEEDS_NEXT = ("\r", "\u200d")


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    if code == 0x7F:
        return _DELETE_PICTURE
    return " " if code in (0x2028, 0x2029) else _REPLACEMENT


def show_controls(text: str) -> str:
    """Return text with newlines as line ends and every other control character replaced by a visible one."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_visible, text)


def sanitize(text: str) -> str:
    """Return text as it can be drawn: `show_controls`, and no joiner that would misplace what follows it."""
    return _STRAY_JOINER.sub("", show_controls(text))


class Sanitizer:
    """`sanitize` for text that comes in pieces: the joined result equals one call on the whole text."""

    def __init__(self) -> None:
        self._held = ""
        self._before = ""

    def push(self, text: str) -> str:
        """Return the safe form of the text so far; a last character that needs its successor is held back."""
        text = self._held + text
        self._held = text[-1:] if text.endswith(_NEEDS_NEXT) else ""
        return self._clean(text[: len(text) - len(self._held)])

    def finish(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return self._clean(held)

    def _clean(self, text: str) -> str:
        clean = sanitize(self._before + text)[len(sanitize(self._before)) :]
        self._before = text[-1:] or self._before
        return clean
