"""Links that a terminal may open (OSC 8): their addresses as words of style names, so that any row has them.

An address comes out of a model: it is opened by nobody but the user, of few schemes, and encoded so that
nothing in it can end the control sequence it goes into.
"""

from __future__ import annotations

import re
from urllib.parse import quote
from zlib import crc32

from rich.style import Style

LONGEST = 2000
"""Characters of an address; terminals take no more than about 2083 bytes."""

_WORD = "link:"
_OPENED = re.compile(r"(?:https?://|ftp://|mailto:)[^/]", re.IGNORECASE)
_AS_IT_IS = "%/:=&?~#+!$,;'@()*[]"
_BARE = re.compile(r"\bhttps?://[\w\-.~:/?#\[\]@!$&'()*+,;=%]+", re.IGNORECASE | re.ASCII)
_BEHIND = ".,;:!?'*_~"
_PAIRS = {")": "(", "]": "["}


def link_word(address: str) -> str:
    """The word of a style name for text that leads to an address; "" if that is not to be opened."""
    encoded = quote(address, safe=_AS_IT_IS, errors="replace")
    return f"{_WORD}{encoded}" if _OPENED.match(address) and len(encoded) <= LONGEST else ""


def split_link(name: str) -> tuple[str, str]:
    """A style name without such a word, and the address in it, "" if there is none."""
    if _WORD not in name:
        return name, ""
    words = name.split(" ")
    address = next((word for word in words if word.startswith(_WORD)), "")
    return " ".join(word for word in words if word != address), address.removeprefix(_WORD)


def linked(style: Style, address: str) -> Style:
    """The style of text that leads to an address; pieces of it in several rows are one link by their id."""
    opened = style.update_link(address)
    opened._link_id = f"{crc32(address.encode()):x}"
    return opened


def addresses(text: str) -> list[tuple[int, int]]:
    """Where addresses stand that are written without any markup, without what only stands behind them."""
    found = []
    for match in _BARE.finditer(text):
        address = match[0]
        while address[-1] in _BEHIND or (
            address[-1] in _PAIRS and address.count(address[-1]) > address.count(_PAIRS[address[-1]])
        ):
            address = address[:-1]
        if _OPENED.match(address):
            found.append((match.start(), match.start() + len(address)))
    return found
