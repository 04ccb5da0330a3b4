"""Models in the cache of the Hugging Face Hub, which huggingface_hub and whoever uses it share.

HUB/models--OWNER--NAME/{refs/REVISION, snapshots/COMMIT/FILE -> ../../blobs/HASH}
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..files import TextError, read_text
from ..hub.choice import Variant, variants
from ..hub.listing import HubFile, Listing
from ..hub.name import MAIN, SAFETENSORS, HubName, is_commit
from ..hub.quantization import answers
from .found import Found, cache_home, files_below, from_environment, together

PROGRAM = "Hugging Face"
_PREFIX = "models--"


def hub_cache() -> Iterator[Found]:
    """All whole models in the cache: hf:OWNER/REPOSITORY:WHICH, with the commit unless it is that of main."""
    folder = cache_folder()
    try:
        repositories = sorted(os.listdir(folder)) if folder is not None else []
    except OSError:
        return
    for each in repositories:
        if folder is not None and each.startswith(_PREFIX):
            yield from _models(folder / each)


def in_cache(name: HubName) -> Found | None:
    """The model that a name asks for, if the cache has all of it."""
    folder = cache_folder()
    if folder is None:
        return None
    repository = folder / f"{_PREFIX}{name.repo.replace('/', '--')}"
    commit = name.revision if is_commit(name.revision) else _ref(repository, name.revision)
    if commit is None:
        return None
    found = [each for each in variants(_listing(repository, name.repo, commit)) if _answers(each, name)]
    return _found(repository, name.repo, name.revision, commit, found[0]) if found else None


def cache_folder() -> Path | None:
    """Where the cache lies, by the variables that huggingface_hub goes by."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if (folder := from_environment(variable)) is not None:
            return folder
    hub = from_environment("HF_HOME")
    if hub is None:
        base = cache_home()
        hub = base / "huggingface" if base is not None else None
    return hub / "hub" if hub is not None else None


def _models(repository: Path) -> Iterator[Found]:
    owner, sign, name = repository.name.removeprefix(_PREFIX).partition("--")
    if not sign or not f"{owner}{name}".isprintable():
        return
    repo, main = f"{owner}/{name}", _ref(repository, MAIN)
    try:
        commits = sorted(os.listdir(repository / "snapshots"))
    except OSError:
        return
    for commit in commits:
        if is_commit(commit):
            revision = MAIN if commit == main else commit
            for variant in variants(_listing(repository, repo, commit)):
                yield _found(repository, repo, revision, commit, variant)


def _found(repository: Path, repo: str, revision: str, commit: str, variant: Variant) -> Found:
    snapshot = repository / "snapshots" / commit
    size, problem = together(snapshot / file.path for file in variant.files)
    path = snapshot if variant.is_folder else snapshot / variant.files[0].path
    return Found(str(HubName(repo, variant.which, revision)), PROGRAM, path, size, problem)


def _answers(variant: Variant, name: HubName) -> bool:
    if name.wants_file:
        return any(name.which in (file.path, file.name) for file in variant.files)
    if name.which.lower() == SAFETENSORS or not name.which:
        return not name.which or variant.is_folder
    return answers(variant.label, name.which)


def _listing(repository: Path, repo: str, commit: str) -> Listing:
    snapshot = repository / "snapshots" / commit
    paths = [os.path.relpath(entry.path, snapshot) for entry in files_below(snapshot)]
    return Listing(repo, commit, "", False, tuple(HubFile(path) for path in paths))


def _ref(repository: Path, revision: str) -> str | None:
    """The commit that a branch or tag was when it was last downloaded."""
    try:
        commit = read_text(repository / "refs" / revision, 256).text.strip()
    except (OSError, TextError, ValueError):
        return None
    return commit if is_commit(commit) else None
