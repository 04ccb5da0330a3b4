"""Deleting a downloaded model; never what is the user's own or another program's."""

from __future__ import annotations

import os

from .file_locks import try_lock
from .files import open_private, size_of
from .model_entry import LocalSource, ModelEntry
from .registry import Registry
from .registry_errors import RegistryError


def remove(registry: Registry, name: str) -> int:
    """Delete a downloaded model, unfinished parts too; the bytes freed. Never a file of the user's own.

    RegistryError: nothing is downloaded, or another process is downloading it.
    """
    from shutil import rmtree

    entry = registry.entry(name)
    folder = registry.folder_of(entry)
    try:
        files = [file for file in folder.iterdir() if file.name != ".lock"] if folder is not None else []
    except FileNotFoundError:
        files = []
    except OSError as error:
        raise RegistryError(f"cannot remove the model {name}: {folder}: {error.strerror}") from error
    if folder is None or not files:
        raise RegistryError(f"cannot remove the model {name}: {_kept_by(registry, entry)}")
    try:
        fd = open_private(folder / ".lock", os.O_RDWR)
    except OSError as error:
        raise RegistryError(f"cannot remove the model {name}: {folder}: {error.strerror}") from error
    try:
        if not try_lock(fd):
            raise RegistryError(f"cannot remove the model {name}: another termchat is downloading it")
        freed = sum(size_of(file) for file in folder.rglob("*") if os.path.isfile(file))
        for file in sorted(files, key=lambda file: file.name[0] == "."):  # the note of what it is comes last
            if os.path.isdir(file) and not os.path.islink(file):  # pip's, of a process that was killed
                rmtree(file)
            else:
                file.unlink()
    except OSError as error:
        raise RegistryError(f"cannot remove {error.filename or folder}: {error.strerror}") from error
    finally:
        os.close(fd)
    return freed


def _kept_by(registry: Registry, entry: ModelEntry) -> str:
    """Why nothing of a model is removed."""
    own = next((source for source in entry.sources if isinstance(source, LocalSource)), None)
    if own is not None:
        return f"it is your own file, {own.path}; its name stands in your models.toml"
    try:
        path = registry.resolve(entry.name).path
    except RegistryError:
        return "it is not downloaded"
    return f"it is another program's, {path}"
