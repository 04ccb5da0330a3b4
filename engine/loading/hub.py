"""The layout of the Hugging Face Hub's cache, and what a model in it is called.

    HUB/models--OWNER--NAME/snapshots/REVISION/FILE -> ../../blobs/HASH (-> HUB/blobs/HASH, in newer caches)

Recognized by its structure, so it may lie anywhere (HF_HUB_CACHE, HF_HOME, a copy on another disk).
"""

from __future__ import annotations

import os
from pathlib import Path

_REPOSITORIES = ("models--", "datasets--", "spaces--")


def repository_of(path: Path) -> Path | None:
    """The repository's folder that a resolved path below its snapshots belongs to, None if there is none."""
    for snapshots in (path, *path.parents):
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith(_REPOSITORIES):
            return snapshots.parent
    return None


def is_kept_by(target: Path, repository: Path) -> bool:
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


def is_stored_file(target: Path) -> bool:
    """Whether a resolved path is a file's content (a blob) in any cache of the hub."""
    for blobs in target.parents:
        if blobs.name == "blobs":
            hub = blobs.parent
            return hub.name.startswith(_REPOSITORIES) or any(
                name.startswith(_REPOSITORIES) for name in os.listdir(hub)
            )
    return False


def model_name(path: str | Path) -> str:
    """What to call the model at this path: OWNER/NAME for a folder in the hub's cache, else its own name.

    A file's name is the one it was given by, also where that is a link to a blob named by its hash.
    """
    path = Path(path)
    if os.path.isdir(path):
        repository = repository_of(path.resolve())
        if repository is not None:
            return repository.name.partition("--")[2].replace("--", "/")
    return Path(os.path.abspath(path)).name
