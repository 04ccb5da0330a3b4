"""Models in several files: NAME-00001-of-00003.gguf and so on, as gguf-split makes them."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE)
"""The name of one file of several."""

_MOST = 1000


def numbered(stem: str, count: int, suffix: str) -> list[str]:
    """The names of the files of a model in `count` files, the first thousand of them."""
    return [f"{stem}-{number:05}-of-{count:05}{suffix}" for number in range(1, min(count, _MOST) + 1)]


def part_names(path: str) -> list[str]:
    """All parts of a model in several files, of which one is named; else the file alone."""
    part = PART.fullmatch(path)
    if part is None or not 1 <= int(part["number"]) <= int(part["count"]) <= _MOST:
        return [path]
    return numbered(part["stem"], int(part["count"]), part["suffix"])


def stem_of(path: str) -> str:
    """The name of a GGUF file without folders, number and ending."""
    name = PurePosixPath(path).name
    part = PART.fullmatch(name)
    return part["stem"] if part is not None else re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE)
