"""A model's folder: which files are the model's, each of them read once, and what people call it.

A folder in the Hugging Face Hub's cache is recognized by its structure, so it may lie anywhere (HF_HUB_CACHE,
HF_HOME, a copy on another disk):

    HUB/models--OWNER--NAME/snapshots/REVISION/FILE -> ../../blobs/HASH (-> HUB/blobs/HASH, in newer caches)
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

from .fields import Fields, invalid, shown
from .files import decoded, parse_json_object, read_bytes

_MAX_PATH = 250  # characters of one that is quoted
_REPOSITORIES = ("models--", "datasets--", "spaces--")


class Folder:
    """The files of a model's folder, each opened and parsed once, however many ask for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._objects: dict[str, dict[str, Any] | None] = {}

    @property
    def name(self) -> str:
        """What to call the model."""
        return model_name(self.path)

    def file(self, entry: str, source: str = "the model") -> Path:
        """The path of the file that `source` (a file's name, for the message) names; it need not exist.

        Refused, and not opened: absolute paths, "..", links to nothing, and links that lead out of the
        folder, however many links there are on the way. Two kinds of links are allowed, as huggingface_hub
        makes them: those of its cache may end anywhere in the repository's own folder or in what the cache
        shares, and those of a folder elsewhere may end at a file that such a cache keeps.
        """
        parts, name = PurePosixPath(entry), shown(entry, _MAX_PATH)
        if not entry or parts.is_absolute() or ".." in parts.parts:
            raise invalid(self.path, f"{source} names {name}, outside the model's folder")
        try:
            path = self.path / entry
            root, target = self.path.resolve(), path.resolve()
            if os.path.islink(path) and not os.path.exists(path):
                raise invalid(
                    self.path,
                    f"{name} is a link to {shown(str(target), _MAX_PATH)}, which does not exist; "
                    "copy the folder with what its links lead to (cp -rL), or download it again",
                )
            if target.is_relative_to(root):
                return path
            repository = _repository_of(root)
            kept = _is_stored_file(target) if repository is None else _is_kept_by(target, repository)
        except (OSError, ValueError, RuntimeError):
            raise invalid(self.path, f"{source} names {name}, no valid path") from None
        if not kept:
            raise invalid(
                self.path,
                f"{name} is a link that leads out of the model's folder, which is not followed; "
                "name the file itself if it is GGUF, or copy the folder with what its links lead to (cp -rL)",
            )
        return path

    def has(self, name: str) -> bool:
        """Whether there is such a file, whatever it holds."""
        return os.path.exists(self.path / name)

    def json(self, name: str) -> dict[str, Any] | None:
        """A JSON object; None if there is no such file."""
        if name not in self._objects:
            path = self.file(name)
            data = read_bytes(path)
            if data == b"":
                raise invalid(path, "it has 0 bytes; a JSON object is expected")
            self._objects[name] = None if data is None else parse_json_object(data, path)
        return self._objects[name]

    def fields(self, name: str, *, required: bool = False) -> Fields:
        """The fields of a JSON object; none if there is no such file, unless it is required."""
        values = self.json(name)
        if values is None and required:
            raise invalid(self.path, f"has no {name}", colon=False)
        return Fields(self.path / name, values or {})

    def text(self, name: str) -> str | None:
        """A text; None if there is no such file."""
        path = self.file(name)
        data = read_bytes(path)
        return None if data is None else decoded(data, path)


def model_name(path: str | Path) -> str:
    """What to call the model at this path: OWNER/NAME for a folder in the hub's cache, else its own name.

    A file's name is the one it was given by, also where that is a link to a blob named by its hash.
    """
    path = Path(path)
    if os.path.isdir(path):
        repository = _repository_of(path.resolve())
        if repository is not None:
            return repository.name.partition("--")[2].replace("--", "/")
    return Path(os.path.abspath(path)).name


def _repository_of(path: Path) -> Path | None:
    """The repository's folder that a resolved path below its snapshots belongs to, None if there is none."""
    for snapshots in (path, *path.parents):
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith(_REPOSITORIES):
            return snapshots.parent
    return None


def _is_kept_by(target: Path, repository: Path) -> bool:
    """Whether a resolved path belongs to a repository: in its folder, or in what the hub's cache shares.

    The folder of the files' contents, of the repository or of the hub, may be a link to another disk.
    """
    hub = repository.parent
    kept = [repository, *((folder / "blobs").resolve() for folder in (repository, hub))]
    if any(target.is_relative_to(folder) for folder in kept):
        return True
    if not target.is_relative_to(hub):
        return False
    return not target.relative_to(hub).parts[0].startswith(_REPOSITORIES)


def _is_stored_file(target: Path) -> bool:
    """Whether a resolved path is a file's content (a blob) in any cache of the hub."""
    for blobs in target.parents:
        if blobs.name == "blobs":
            hub = blobs.parent
            return hub.name.startswith(_REPOSITORIES) or any(
                name.startswith(_REPOSITORIES) for name in os.listdir(hub)
            )
    return False
