"""The registry: models known by name, where they lie on this machine, and where they come from.

`registry_file.py` reads the entries of the built-in models.toml and of the user's own. A downloaded model is
`<cache>/models/NAME/FILE`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from .errors import UserError, did_you_mean
from .files import expanded, open_private, try_lock
from .paths import Paths, data_file
from .registry_file import LocalSource, ModelEntry, read_registries

_LISTED = 20  # names in an error; `termchat models list` has all


class RegistryError(UserError):
    """A model's name, entry or file is not usable."""


class UnknownModelError(RegistryError):
    """Neither a registered name nor a file or folder."""


class NotDownloadedError(RegistryError):
    """A registered model that is not on this machine; `entry` says what it is and how large."""

    def __init__(self, message: str, entry: ModelEntry) -> None:
        super().__init__(message)
        self.entry = entry


class ResolvedModel(NamedTuple):
    """A model that can be loaded: its name for people, its file or folder, and its entry if it has one."""

    name: str
    path: Path
    entry: ModelEntry | None

    @property
    def reference(self) -> str:
        """How to find the model again: its registered name, or its path as it was given.

        Links in it are kept: in the caches of huggingface_hub they lead to files that are named by a hash.
        """
        return self.name if self.entry is not None else _absolute(self.path)

    @property
    def template_vars(self) -> Mapping[str, Any]:
        """Variables for its chat template."""
        return self.entry.template_vars if self.entry is not None else {}


@lru_cache(64)  # asked for with every drawing
def _absolute(path: Path) -> str:
    return os.path.abspath(path)


class ModelStatus(NamedTuple):
    """An entry and what of it is on this machine. partial: bytes of an unfinished download."""

    entry: ModelEntry
    path: Path | None
    partial: int
    default: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; `size` in bytes, null where not known."""
        entry = self.entry
        size = _size(self.path) if self.path is not None and os.path.isfile(self.path) else entry.size
        return {
            "name": entry.name,
            "path": str(self.path) if self.path is not None else None,
            "size": size,
            "licence": entry.licence,
            "description": entry.description,
            "default": self.default,
            "partial": self.partial,
            "sources": [str(source) for source in entry.sources],
            "sha256": entry.sha256,
            "sampling": dict(entry.sampling),
            "template_vars": dict(entry.template_vars),
            "template": entry.template,
            "quantization": entry.quantization,
        }


class Registry:
    """The known models. `warnings` holds one sentence for each part of a file that had to be ignored."""

    def __init__(
        self, entries: Mapping[str, ModelEntry], default: str, models: Path, warnings: tuple[str, ...] = ()
    ) -> None:
        self.entries = dict(entries)
        self.default = default
        self.models = models
        self.warnings = warnings

    @classmethod
    def load(cls, paths: Paths) -> Self:
        """Read the built-in models.toml and the user's. A broken file or entry becomes a warning."""
        found = read_registries(data_file("models.toml"), paths.registry_file)
        return cls(found.entries, found.default, paths.models, found.warnings)

    def entry(self, name: str) -> ModelEntry:
        """The entry of that name. UnknownModelError: names the nearest ones."""
        if name in self.entries:
            return self.entries[name]
        raise UnknownModelError(f"no model is called {name[:100]!r}; {self._hint(name)}")

    def _hint(self, name: str) -> str:
        known = [*list(self.entries)[:_LISTED], *(["..."] if len(self.entries) > _LISTED else [])]
        near = did_you_mean(name.lower(), self.entries, "{}", most=3, like=0.5)
        return near or f"known are {', '.join(known)}"

    def path_of(self, entry: ModelEntry) -> Path | None:
        """Where the model lies, None if it is not here. A file of another size than the entry's is not it."""
        for source in entry.sources:
            if isinstance(source, LocalSource) and os.path.exists(source.path):
                return source.path
        path = self.target(entry)
        if path is None or not os.path.isfile(path):  # False, too, where it may not be looked at
            return None
        return path if entry.size is None or _size(path) == entry.size else None

    def target(self, entry: ModelEntry) -> Path | None:
        """Where a download of the model lands, None if it has no source to download from."""
        return self.models / entry.name / entry.file if entry.file is not None else None

    def has_file(self, name: str) -> bool:
        """Whether anything is here under the model's name, though it may be damaged."""
        entry = self.entry(name)
        target = self.target(entry)
        return self.path_of(entry) is not None or (target is not None and os.path.isfile(target))

    def resolve(self, name: str | None = None) -> ResolvedModel:
        """The model of a registered name, or of a path to a file or folder; the default model for None.

        A name goes before a file of the same name; `./NAME` asks for the file.
        UnknownModelError, NotDownloadedError.
        """
        name = name if name is not None else self.default
        if name in self.entries:
            entry = self.entries[name]
            path = self.path_of(entry)
            if path is None:
                raise NotDownloadedError(self.absent(entry), entry)
            return ResolvedModel(name, path, entry)
        path = expanded(name)
        absent = _absent(path)
        if name and absent is None:
            from engine import model_name  # who names a file is about to open it

            return ResolvedModel(model_name(path), path, None)
        if os.sep in name or name.startswith("~") or path.suffix in (".gguf", ".safetensors"):
            reason = f": {absent}" if absent else ""
            raise UnknownModelError(f"there is no model file or folder {name}{reason}")
        raise UnknownModelError(
            f"no model is called {name[:100]!r}, and there is no such file or folder; {self._hint(name)}"
        )

    def absent(self, entry: ModelEntry) -> str:
        """That a model is not here, and what to do."""
        if entry.file is None:
            return f"the model {entry.name} is not at {entry.sources[0]}"
        return f"the model {entry.name} is not downloaded; run: termchat models pull {entry.name}"

    def show(self, name: str) -> ModelStatus:
        """One model and its state. UnknownModelError."""
        entry = self.entry(name)
        target = self.target(entry)
        partial = sum(map(_size, _parts(target.parent))) if target is not None else 0
        return ModelStatus(entry, self.path_of(entry), partial, entry.name == self.default)

    def list_models(self) -> list[ModelStatus]:
        """All models, the default first, then in the order of the files."""
        names = sorted(self.entries, key=lambda name: name != self.default)
        return [self.show(name) for name in names]

    def remove(self, name: str) -> int:
        """Delete a downloaded model, unfinished parts too; the bytes freed. Never a file of the user's own.

        RegistryError: nothing is downloaded, or another process is downloading it.
        """
        from shutil import rmtree

        entry = self.entry(name)
        folder = self.models / entry.name
        try:
            files = [file for file in folder.iterdir() if file.name != ".lock"]
        except FileNotFoundError:
            files = []
        except OSError as error:
            raise RegistryError(f"cannot remove the model {name}: {folder}: {error.strerror}") from error
        if not files:
            own = next((source for source in entry.sources if isinstance(source, LocalSource)), None)
            reason = f"it is your own file, {own.path}" if own is not None else "it is not downloaded"
            raise RegistryError(f"cannot remove the model {name}: {reason}")
        try:
            fd = open_private(folder / ".lock", os.O_RDWR)
        except OSError as error:
            raise RegistryError(f"cannot remove the model {name}: {folder}: {error.strerror}") from error
        try:
            if not try_lock(fd):
                raise RegistryError(f"cannot remove the model {name}: another termchat is downloading it")
            freed = sum(_size(file) for file in folder.rglob("*") if os.path.isfile(file))
            for file in files:
                if os.path.isdir(file):  # pip's, left by a process that was killed
                    rmtree(file)
                else:
                    file.unlink()
        except OSError as error:
            raise RegistryError(f"cannot remove {error.filename or folder}: {error.strerror}") from error
        finally:
            os.close(fd)
        return freed


def model_title(reference: str) -> str:
    """What people call a model that is found by this name or path: the last part of it, or OWNER/NAME for a
    snapshot's folder in a cache of the Hub (models--OWNER--NAME/snapshots/REVISION).
    """
    *_, repository, snapshots, last = ["", "", *reference.rstrip(os.sep).split(os.sep)]
    if snapshots == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/")
    return last


def _absent(path: Path) -> str | None:
    """Why no file or folder is found at `path`, "" if there simply is none; None: there is one."""
    try:
        os.path.abspath(path)  # where the current folder was removed, even `.` is nowhere
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return error.strerror
    except ValueError as error:  # no name that a file could have
        return str(error)
    return None


def _parts(folder: Path) -> list[Path]:
    """Unfinished downloads; none where the folder cannot be read."""
    try:
        return [folder / name for name in os.listdir(folder) if name.endswith(".part")]
    except OSError:
        return []


def _size(path: Path) -> int:
    """Bytes of a file; 0 if another process has just taken it away."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
