"""A model that another program has brought here, and how such are found by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

MOST_FILES = 20_000
"""Entries of folders that are looked at for one program: a link to the whole disk ends there."""

_DEEPEST = 5


class Found(NamedTuple):
    """A model of another program. name: how `--model` takes it; program: for people; size: bytes.

    problem: why it cannot be used, as far as its place says; "" if nothing is known against it. licence: what
    the program has noted of it.
    """

    name: str
    program: str
    path: Path
    size: int | None = None
    problem: str = ""
    licence: str = ""

    @property
    def short(self) -> str:
        """Its name without the program."""
        return self.name.partition(":")[2]


Finder = Callable[[], Iterator[Found]]
"""Looks through the folders of one program. What cannot be read is left out, or has its problem said."""


def files_below(folder: Path, deepest: int = _DEEPEST) -> Iterator[os.DirEntry[str]]:
    """Files, and links to files, in a folder and those below it, in the order of names. Never fails.

    Links to folders are followed, each folder once.
    """
    left = MOST_FILES
    seen: set[tuple[int, int]] = set()
    waiting = [(folder, 0)]
    while waiting and left > 0:
        here, depth = waiting.pop()
        try:
            info = os.stat(here)
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            with os.scandir(here) as listed:
                entries = sorted(islice(listed, left), key=lambda entry: entry.name)
        except (OSError, ValueError):
            continue
        below = []
        for entry in entries:
            left -= 1
            if entry.name.startswith("."):
                continue
            if os.path.isdir(entry.path):
                below += [(Path(entry.path), depth + 1)] if depth < deepest else []
            else:
                yield entry
        waiting += reversed(below)


def size_of(entry: os.DirEntry[str] | Path) -> tuple[int | None, str]:
    """Bytes of a file, and what is wrong with it: a link to nothing, no permission, no regular file."""
    try:
        info = entry.stat() if isinstance(entry, Path) else os.stat(entry.path)
    except FileNotFoundError:
        return None, "it is a link to a file that is gone" if os.path.islink(entry) else "its file is gone"
    except (OSError, ValueError) as error:
        return None, f"it cannot be looked at: {getattr(error, 'strerror', None) or error}"
    if not stat.S_ISREG(info.st_mode):
        return None, "it is no regular file"
    if not os.access(entry, os.R_OK):
        return info.st_size, "you may not read its file"
    return info.st_size, ""


def together(files: Iterable[os.DirEntry[str] | Path]) -> tuple[int, str]:
    """Bytes of a model's files as far as they can be looked at, and what is wrong with the first that is."""
    sizes = [size_of(file) for file in files]
    return sum(size or 0 for size, _ in sizes), next((said for _, said in sizes if said), "")


def home() -> Path | None:
    """The user's home folder; None if there is none."""
    place = os.path.expanduser("~")
    return Path(place) if os.path.isabs(place) else None


def from_environment(variable: str) -> Path | None:
    """A folder that a variable names."""
    value = os.environ.get(variable, "").strip()
    return Path(os.path.expanduser(value)) if value else None


def cache_home() -> Path | None:
    """Where programs keep what can be had again (XDG Base Directory Specification)."""
    own = home()
    return from_environment("XDG_CACHE_HOME") or (own / ".cache" if own is not None else None)
