"""The registry: models known by name, where they lie on this machine, and where they come from.

`registry_file.py` reads the entries of the built-in models.toml and of the user's own. A downloaded model is
`<cache>/models/NAME/FILE`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self
from urllib.parse import unquote

from .elsewhere import PROGRAMS
from .errors import did_you_mean, shown
from .files import expanded, lost_link, size_of
from .hub import PREFIX
from .model_entry import LocalSource, ModelEntry, NamedSource
from .paths import Paths, data_file
from .registry_errors import NotDownloadedError, RegistryError, UnknownModelError
from .registry_file import read_registries
from .resolved_model import ModelStatus, ResolvedModel

if TYPE_CHECKING:
    from .elsewhere.found import Found
    from .hub.name import HubName

_LISTED = 20  # names in an error; `termchat models list` has all


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
        """The entry of that name, registered or of the Hub. UnknownModelError: names the nearest ones."""
        if name in self.entries:
            return self.entries[name]
        if name.startswith(PREFIX):
            from .hub.kept import kept, matching, open_entry

            wanted = hub_name(name)
            found = matching(wanted, kept(self.models)) or [open_entry(wanted)]
            return next((each for each in found if self.path_of(each) is not None), found[0])
        raise UnknownModelError(f"no model is called {name[:100]!r}; {self._hint(name)}")

    def of_the_hub(self) -> list[str]:
        """Names of the models in our folder that came from the Hub by its names."""
        from .hub.kept import kept

        return [entry.name for entry in kept(self.models)]

    def followed(self, name: str) -> str:
        """The name of the Hub that a registered name stands for; the name itself, if it stands for none."""
        sources = self.entries[name].sources if name in self.entries else ()
        named = [source.name for source in sources if isinstance(source, NamedSource)]
        return named[0] if len(sources) == 1 and named and named[0].startswith(PREFIX) else name

    def _hint(self, name: str) -> str:
        if page := _page_hint(name):
            return page
        return did_you_mean(name.lower(), self.entries, "{}", most=3)

    def path_of(self, entry: ModelEntry) -> Path | None:
        """Where the model lies, None if it is not all here. A file of another size is not it."""
        for source in entry.sources:
            if isinstance(source, LocalSource) and os.path.exists(source.path):
                return source.path
            if isinstance(source, NamedSource):
                with suppress(RegistryError):
                    return self.resolve(source.name).path
        files = self.files_of(entry)
        sizes = [part.size for part in entry.parts]
        if not files or not all(map(os.path.isfile, files)):  # False, too, where it may not be looked at
            return None
        right = all(size is None or size_of(file) == size for file, size in zip(files, sizes, strict=True))
        return self.target(entry) if right else None

    def target(self, entry: ModelEntry) -> Path | None:
        """Where a download of the model lands: the file to open, or its folder; None if that is not known."""
        folder = self.folder_of(entry)
        if folder is None or not entry.parts:
            return None
        return folder if entry.folder else folder / entry.parts[0].name

    def folder_of(self, entry: ModelEntry) -> Path | None:
        """The folder that is the model's own; None where it is not known yet which."""
        if entry.name.startswith(PREFIX):
            from .hub.kept import folder_of

            return folder_of(self.models, entry)
        return self.models / entry.name

    def files_of(self, entry: ModelEntry) -> list[Path]:
        """Where the files of a download land, in the order of its parts."""
        folder = self.folder_of(entry)
        return [folder / part.name for part in entry.parts] if folder is not None else []

    def has_file(self, name: str) -> bool:
        """Whether anything is here under the model's name, though it may be damaged."""
        entry = self.entry(name)
        return self.path_of(entry) is not None or any(map(os.path.isfile, self.files_of(entry)))

    def resolve(self, name: str | None = None) -> ResolvedModel:
        """The model of a name, or of a path to a file or folder; the default model for None.

        Looked for in this order: registered names; hf:..., in our own folder, then in the Hub's cache; names
        of other programs' models, such as ollama:NAME; files and folders; what a name is short for among
        all other programs' models, if it is one only. `./NAME` asks for the file.
        UnknownModelError, NotDownloadedError.
        """
        name = name if name is not None else self.default
        if name in self.entries:
            return self._registered(self.entries[name])
        if name.startswith(PREFIX):
            return self._of_the_hub(hub_name(name))
        if name.partition(":")[0] in PROGRAMS:
            return self._of_a_program(name)
        path = expanded(name)
        absent = _absent(path)
        if name and absent is None:
            from engine import model_name  # who names a file is about to open it

            return ResolvedModel(model_name(path), path, None)
        as_path = name.startswith((".", os.sep, "~")) or path.suffix in (".gguf", ".safetensors")
        as_path = as_path or os.path.islink(path)
        if name and not as_path:  # a name of another program may have folders, too
            from .elsewhere.everywhere import short_for

            if (found := _one_of(name, short_for(name))) is not None:
                return found
        if as_path or os.sep in name:
            page = _page_hint(name)
            reason = f": {absent}" if absent else f"; {page}" if page else ""
            raise UnknownModelError(f"there is no model file or folder {name}{reason}")
        return self._unknown(name)

    def without_entry(self, name: str) -> ResolvedModel | None:
        """Another program's model, or a file of the user's; None for one of ours, and what is not here.

        UnknownModelError.
        """
        if name in self.entries:
            return None
        try:
            model = self.resolve(name)
        except NotDownloadedError:
            return None
        return model if model.entry is None else None

    def _registered(self, entry: ModelEntry) -> ResolvedModel:
        path = self.path_of(entry)
        if path is not None:
            return ResolvedModel(entry.name, path, entry)
        named = next((source for source in entry.sources if isinstance(source, NamedSource)), None)
        if named is not None and not entry.is_fetched:
            self.resolve(named.name)  # says why not
        raise NotDownloadedError(self.absent(entry), entry)

    def _of_the_hub(self, name: HubName) -> ResolvedModel:
        entry = self.entry(str(name))
        if (path := self.path_of(entry)) is not None:
            return ResolvedModel(entry.name, path, entry)
        from .elsewhere.hub_cache import in_cache

        found = in_cache(name)
        if found is not None and not found.problem:
            return ResolvedModel(found.name, found.path, None, elsewhere=True)
        raise NotDownloadedError(self.absent(entry), entry)

    def _of_a_program(self, name: str) -> ResolvedModel:
        from .elsewhere.everywhere import FINDERS, of_program

        found = _one_of(name, of_program(name))
        if found is not None:
            return found
        names = [each.name for each in FINDERS[name.partition(":")[0]]()]
        near = did_you_mean(name, names, "{}", most=3, like=0.4)
        raise UnknownModelError(
            f"no model is called {name[:100]!r}; {near or 'termchat models list --all shows what is here'}"
        )

    def _unknown(self, name: str) -> NoReturn:
        raise UnknownModelError(
            f"no model is called {name[:100]!r}, and there is no such file or folder; {self._hint(name)}"
        )

    def absent(self, entry: ModelEntry) -> str:
        """That a model is not here, and what to do."""
        if not entry.is_fetched:
            return f"the model {entry.name} is not at {entry.sources[0]}"
        return f"the model {entry.name} is not downloaded; run: termchat models pull {entry.name}"

    def show(self, name: str) -> ModelStatus:
        """One model and its state. UnknownModelError."""
        return self.status(self.entry(name))

    def status(self, entry: ModelEntry) -> ModelStatus:
        """The state of a model."""
        folder = self.folder_of(entry)
        path = self.path_of(entry)
        if folder is None or not entry.parts:
            partial = 0
        elif entry.name.startswith(PREFIX) or len(entry.parts) > 1:
            from .hub.kept import bytes_here

            partial = bytes_here(folder) if path is None else 0
        else:
            partial = sum(map(size_of, _parts(folder)))
        return ModelStatus(entry, path, partial, entry.name == self.default)

    def list_models(self) -> list[ModelStatus]:
        """All models, the default first, then in the order of the files, then those of the Hub."""
        from .hub.kept import kept

        names = sorted(self.entries, key=lambda name: name != self.default)
        return [self.status(entry) for entry in (*(self.entries[name] for name in names), *kept(self.models))]


def hub_name(name: str) -> HubName:
    """The parts of a name of the Hub. UnknownModelError."""
    from .hub.name import HubName, HubNameError

    try:
        return HubName.parse(name)
    except HubNameError as error:
        raise UnknownModelError(str(error)) from error


def _page_hint(name: str) -> str:
    """How to name what looks like a page of the Hub or another address, to end a sentence with; else ""."""
    from .hub.name import name_of_page

    page = name_of_page(name)
    if page is not None:
        return f"one of the Hugging Face Hub is {page}"
    if name.startswith("file://"):
        return f"name it by its path, {unquote(name.removeprefix('file://'))}"
    return "it is an address: download the file, and name it by its path" if "://" in name else ""


def _one_of(name: str, found: list[Found]) -> ResolvedModel | None:
    """The one model that a name means; None if there is none. UnknownModelError: there are several, or it is
    not to be used.
    """
    if len(found) > 1:
        names = ", ".join(each.name for each in found[:_LISTED])
        raise UnknownModelError(f"{shown(name)} can be one of {names}; name it in full")
    if not found:
        return None
    if found[0].problem:
        raise UnknownModelError(
            f"the model {found[0].name} cannot be used: {found[0].problem} ({found[0].path})"
        )
    return ResolvedModel(found[0].name, found[0].path, None, elsewhere=True)


def _absent(path: Path) -> str | None:
    """Why no file or folder is found at `path`, "" if there simply is none; None: there is one."""
    try:
        os.path.abspath(path)  # where the current folder was removed, even `.` is nowhere
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        lost = lost_link(path)
        return f"it {lost}" if lost else ""
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
