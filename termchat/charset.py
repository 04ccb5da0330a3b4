"""What the terminal can show, as the locale says: which characters, and whether the signs of a full screen.

The variables are read rather than the C library asked: a locale that is not installed still says what the
terminal on the other side of an ssh connection speaks.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Mapping

from .terminals import is_bare

UTF_8 = "utf-8"
_PLAIN = ("C", "POSIX")
_VARIABLES = ("LC_ALL", "LC_CTYPE", "LANG")  # the first that is set holds (POSIX.1-2017, 8.2)


def charset(environ: Mapping[str, str] = os.environ) -> str:
    """The codec of the terminal's texts: UTF-8, unless the locale names another charset.

    `C` names none; such terminals are taken to speak UTF-8, as Python does (PEP 540).
    """
    name = _locale(environ).partition("@")[0].partition(".")[2]
    try:
        codec = codecs.lookup(name).name if name else UTF_8
        return codec if "\x1b[0m Az~".encode(codec) == b"\x1b[0m Az~" else UTF_8
    except (LookupError, UnicodeError):
        return UTF_8


def shows_signs(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether boxes, bars and arrows can be drawn with other characters than those of ASCII."""
    plain = _locale(environ).partition(".")[0] in _PLAIN and "." not in _locale(environ)
    return not plain and charset(environ) == UTF_8 and not is_bare(environ)


def encoded(text: str, codec: str) -> bytes:
    """Text as the terminal gets it: a character that it lacks is as many question marks as it takes cells."""
    return text.encode(codec, "replace" if codec == UTF_8 else _CELLS)


def _locale(environ: Mapping[str, str]) -> str:
    """The locale of characters; "" if none is set. Python's own LC_CTYPE (PEP 538) is not the user's."""
    coerced = environ is os.environ and _coerced(environ)
    names = [name for name in _VARIABLES if not (coerced and name == "LC_CTYPE")]
    return next((environ[name] for name in names if environ.get(name)), "")


def _coerced(environ: Mapping[str, str]) -> bool:
    """Whether Python has found no usable locale and set LC_CTYPE, as it does together with its UTF-8 mode."""
    asked = environ.get("PYTHONUTF8") == "1" or "utf8" in sys._xoptions
    return bool(sys.flags.utf8_mode) and not asked and not environ.get("LC_ALL")


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    from .cells import cell_len

    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join("?" * cell_len(each) for each in error.object[error.start : error.end]), error.end


_CELLS = "termchat.cells"
codecs.register_error(_CELLS, _question_marks)
