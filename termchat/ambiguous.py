"""Characters of ambiguous width (class A of Unicode's annex 11): one cell wide in most terminals, and two in
those set to the widths of East Asian fonts.

Of these, lines, blocks and the signs that the program itself draws must be one cell wide, as what stands
below or beside them is placed by that. They have stand-ins in ASCII.
"""

from __future__ import annotations

import unicodedata

STAND_INS = {ord(sign): ascii for sign, ascii in zip("●◐◆○•‖■▨·–", "*~#o*=#%.-", strict=True)}
STAND_INS |= {
    ord(sign): ascii for sign, ascii in zip("▁▂▃▄▅▆▇█▉▊▋▌▍▎▏▐▀▔▕▒▓", ".:-=+*%###||||||'-|%#", strict=True)
}


def is_ambiguous(character: str) -> bool:
    """Whether a character is as wide as the terminal is set to draw such characters."""
    return unicodedata.east_asian_width(character) == "A" and ord(character) not in STAND_INS


def _line(character: str) -> str:
    """The stand-in of a character for drawing boxes."""
    words = set(unicodedata.name(character).split())
    if "DIAGONAL" in words:
        return {"╱": "/", "╲": "\\"}.get(character, "X")
    across, down = words & {"HORIZONTAL", "LEFT", "RIGHT"}, words & {"VERTICAL", "UP", "DOWN"}
    return "+" if across and down else "|" if down else "=" if words & {"HEAVY", "DOUBLE"} else "-"


STAND_INS |= {code: _line(chr(code)) for code in range(0x2500, 0x2580)}
