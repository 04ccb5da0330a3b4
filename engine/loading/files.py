"""The files of a model: found inside their folder only, regular files only, mapped read-only."""

from __future__ import annotations

import codecs
import json
import mmap
import os
import stat
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

from ..types import EngineError
from .fields import invalid, shown
from .hub import is_kept_by, is_stored_file, repository_of

MAX_JSON = 1 << 24
MAX_VALUES = 3 << 20  # of a JSON text: twice what the largest vocabulary in use takes
MAX_PATH = 250  # characters of one that is quoted


def file_inside(folder: Path, entry: str, source: str) -> Path:
    """The path of a file in a model's folder that `source` (a file's name, for the message) names by `entry`.

    Refused, and not opened: absolute paths, "..", links to nothing, and links that lead out of the folder,
    however many links there are on the way. Two kinds of links are allowed, as huggingface_hub makes them:
    those of its cache may end anywhere in the repository's own folder or in what the cache shares, and those
    of a folder elsewhere may end at a file that such a cache keeps.
    """
    parts, name = PurePosixPath(entry), shown(entry, MAX_PATH)
    if not entry or parts.is_absolute() or ".." in parts.parts:
        raise invalid(folder, f"{source} names {name}, outside the model's folder")
    try:
        path = folder / entry
        root, target = folder.resolve(), path.resolve()
        if os.path.islink(path) and not os.path.exists(path):
            raise invalid(
                folder,
                f"{name} is a link to {shown(str(target), MAX_PATH)}, which does not exist; "
                "copy the folder with what its links lead to (cp -rL), or download it again",
            )
        if target.is_relative_to(root):
            return path
        repository = repository_of(root)
        kept = is_stored_file(target) if repository is None else is_kept_by(target, repository)
    except (OSError, ValueError, RuntimeError):
        raise invalid(folder, f"{source} names {name}, no valid path") from None
    if not kept:
        raise invalid(
            folder,
            f"{name} is a link that leads out of the model's folder, which is not followed; "
            "name the file itself if it is GGUF, or copy the folder with what its links lead to (cp -rL)",
        )
    return path


def map_file(path: Path) -> mmap.mmap | None:
    """Map a file read-only; None if it is empty (which cannot be mapped).

    Raises EngineError(model_invalid) for anything but a readable regular file; a pipe is never opened.
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
    text = decoded(data, path, f"{what} is not valid JSON: it")
    try:
        value = json.loads(text, object_pairs_hook=_unique if unique_keys else None)
    except (ValueError, RecursionError) as error:
        raise invalid(path, f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise invalid(path, f"{what} must be a JSON object")
    return value


def read_bytes(path: Path, limit: int = MAX_JSON) -> bytes | None:
    """The content of a file in a model's folder; None if there is no such file."""
    if not os.path.exists(path):
        return None
    buffer = map_file(path)
    size = 0 if buffer is None else len(buffer)
    if size > limit:
        raise invalid(path, f"it has {size} bytes; at most {limit} are allowed")
    return b"" if buffer is None else buffer[:]


def read_json(folder: Path, name: str) -> dict[str, Any] | None:
    """A JSON object in a model's folder; None if there is no such file."""
    path = file_inside(folder, name, "the model")
    data = read_bytes(path)
    if data == b"":
        raise invalid(path, "it has 0 bytes; a JSON object is expected")
    return None if data is None else parse_json_object(data, path)


def read_text(folder: Path, name: str) -> str | None:
    """A text file in a model's folder; None if there is no such file."""
    path = file_inside(folder, name, "the model")
    data = read_bytes(path)
    return None if data is None else decoded(data, path)
