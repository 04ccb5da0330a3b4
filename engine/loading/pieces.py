"""Files that were cut into pieces, by their names: repositories do so with what is too large for one upload.

Unlike the parts that gguf-split makes, a piece means nothing by itself.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from .fields import cut, printable

_PIECE = re.compile(
    r"(?P<whole>.+\.gguf)(\.part[-_]?\d+of\d+|\.part[-_]?[a-z]{1,2}|-split-[a-z]{1,2}|\.\d{3})", re.IGNORECASE
)


def whole_of(name: str) -> str | None:
    """The name of the file that one of this name is a piece of, None if it is none."""
    found = _PIECE.fullmatch(PurePosixPath(name).name)
    return None if found is None else printable(cut(found["whole"], 100))


def joining(name: str) -> str:
    """What is to be done with a piece, to end a sentence with; "" for other files."""
    whole = whole_of(name)
    if whole is None:
        return ""
    return f"it is a piece of {whole}: join all pieces in their order (cat PIECES > {whole})"
