"""One file of a model: a regular file, mapped read-only, and what it may hold as text or JSON."""

from __future__ import annotations

import codecs
import errno
import json
import mmap
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from ..types import EngineError
from .fields import invalid, shown
from .recognized import BEFORE, HEAD, kind_of

MAX_JSON = 1 << 24
MAX_VALUES = 3 << 20  # of a JSON text: twice what the largest vocabulary in use takes


def as_written(path: str | Path) -> Path:
    """A path as a person writes it: `~` is the home folder, `~NAME` stays if there is nobody of that name."""
    try:
        return Path(os.path.expanduser(path))
    except ValueError:  # no name that a user could have
        return Path(path)


def map_file(path: Path) -> mmap.mmap | None:
    """Map a file read-only; None if it is empty (which cannot be mapped).

    Raises EngineError: model_invalid for anything but a readable regular file (a pipe is never opened),
    out_of_memory where the system has no room for the mapping.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise invalid(path, "this is not a regular file")
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                return None
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise invalid(path, "does not exist", colon=False) from None
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENOMEM:
            size = path.stat().st_size
            raise EngineError(
                "out_of_memory", f"{path} does not fit: no memory for the {size:,} bytes of the file"
            ) from None
        reason = getattr(error, "strerror", None) or str(error)
        raise invalid(path, f"can't be opened: {reason}", colon=False) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"a key stands twice: {shown(twice)}")
    return entries


def decoded(data: bytes, path: Path, what: str = "") -> str:
    """The text of a file that must be UTF-8; the mark that editors on Windows put in front is left out."""

    def refused(reason: str) -> EngineError:
        return invalid(path, f"{what} {reason}") if what else invalid(path, reason, colon=False)

    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        raise refused("is UTF-16 or UTF-32 text; save the file as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refused(f"is not valid UTF-8 (at byte {error.start})") from None


def parse_json_object(
    data: bytes, path: Path, what: str = "it", *, unique_keys: bool = False
) -> dict[str, Any]:
    """A JSON object from untrusted bytes; without unique_keys the last of equal keys counts."""
    if data.count(b",") > MAX_VALUES or data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise invalid(path, f"{what} holds more than {MAX_VALUES} values")
    if not data.lstrip(BEFORE).startswith(b"{") and (kind := kind_of(data[:HEAD])):
        raise invalid(path, f"{what} is not valid JSON: it is {kind}")
    text = decoded(data, path, f"{what} is not valid JSON: it")
    try:
        value = json.loads(text, object_pairs_hook=_unique if unique_keys else None)
    except (ValueError, RecursionError) as error:
        raise invalid(path, f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise invalid(path, f"{what} must be a JSON object")
    return value


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a file. Raises EngineError(model_invalid), as `map_file` does."""
    buffer = map_file(path)
    return b"" if buffer is None else buffer[:size]


def read_bytes(path: Path, limit: int = MAX_JSON) -> bytes | None:
    """The content of a file; None if there is none."""
    if not os.path.exists(path):
        return None
    buffer = map_file(path)
    size = 0 if buffer is None else len(buffer)
    if size > limit:
        raise invalid(path, f"it has {size} bytes; at most {limit} are allowed")
    return b"" if buffer is None else buffer[:]
