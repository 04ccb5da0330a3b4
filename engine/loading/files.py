"""The files of a model: found inside their folder only, regular files only, mapped read-only."""

from __future__ import annotations

import json
import mmap
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any

from ..types import EngineError

MAX_JSON = 1 << 24


def file_inside(folder: Path, entry: str, source: str) -> Path:
    """The path of a file in a model's folder that `source` (a file's name, for the message) names by `entry`.

    Refused, and not opened: absolute paths, "..", and links that lead out of the folder. One kind of link is
    allowed, the cache of huggingface_hub: snapshots/REVISION/FILE -> ../../blobs/HASH of the same repository.
    """
    parts = PurePosixPath(entry)
    if not entry or parts.is_absolute() or ".." in parts.parts:
        raise EngineError("model_invalid", f"{folder}: {source} names {entry!r}, outside the model's folder")
    try:
        path = folder / entry
        root, target = folder.resolve(), path.resolve()
    except (OSError, ValueError, RuntimeError):
        raise EngineError("model_invalid", f"{folder}: {source} names {entry!r}, no valid path") from None
    cached = root.parent.name == "snapshots" and target.parent == root.parent.parent / "blobs"
    if not target.is_relative_to(root) and not cached:
        raise EngineError(
            "model_invalid", f"{folder}: {entry!r} is a link that leads out of the model's folder"
        )
    return path


def map_file(path: Path) -> mmap.mmap | None:
    """Map a file read-only; None if it is empty (which cannot be mapped).

    Raises EngineError(model_invalid) for anything but a readable regular file; a pipe is never opened.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise EngineError("model_invalid", f"{path} is not a regular file")
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                return None
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise EngineError("model_invalid", f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EngineError("model_invalid", f"{path} can't be opened: {reason}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key stands twice")
    return entries


def parse_json_object(
    data: bytes, path: Path, what: str = "it", *, unique_keys: bool = False
) -> dict[str, Any]:
    """A JSON object from untrusted bytes; without unique_keys the last of equal keys counts."""
    try:
        value = json.loads(data, object_pairs_hook=_unique if unique_keys else None)
    except (ValueError, RecursionError) as error:
        raise EngineError("model_invalid", f"{path}: {what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise EngineError("model_invalid", f"{path}: {what} must be a JSON object")
    return value


def read_json(folder: Path, name: str) -> dict[str, Any] | None:
    """A JSON object in a model's folder; None if there is no such file."""
    path = file_inside(folder, name, "the model")
    if not os.path.exists(path):
        return None
    buffer = map_file(path)
    if buffer is None or len(buffer) > MAX_JSON:
        size = 0 if buffer is None else len(buffer)
        raise EngineError("model_invalid", f"{path} has {size} bytes; 1 to {MAX_JSON} are allowed")
    return parse_json_object(buffer[:], path)
