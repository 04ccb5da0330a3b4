"""A model as an entry of the registry: its name, where it comes from, what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from . import units
from .hub.listing import HubFile
from .hub.split import part_names


class HuggingFaceSource(NamedTuple):
    """A file of a Hugging Face repository. file: "" where the Hub has to be asked which."""

    repo: str
    file: str
    revision: str = "main"

    @property
    def place(self) -> str:
        """Where that is, for people."""
        return "Hugging Face"

    def __str__(self) -> str:
        return f"{self.place} {self.repo}, {self.file}" if self.file else f"{self.place} {self.repo}"


class PyPISource(NamedTuple):
    """A file inside the wheel of a package, `requirement` being NAME==VERSION."""

    requirement: str
    member: str

    @property
    def place(self) -> str:
        """Where that is, for people."""
        return "PyPI"

    def __str__(self) -> str:
        return f"{self.place} {self.requirement}, {self.member}"


class LocalSource(NamedTuple):
    """A file or safetensors folder of the user's own."""

    path: Path

    @property
    def place(self) -> str:
        """Where that is, for people."""
        return "this machine"

    def __str__(self) -> str:
        return str(self.path)


class NamedSource(NamedTuple):
    """A model by another name: of the Hub (hf:...), or of another program on this machine."""

    name: str

    @property
    def place(self) -> str:
        """Where that is, for people."""
        return self.name.partition(":")[0]

    def __str__(self) -> str:
        return self.name


Source = HuggingFaceSource | PyPISource | LocalSource | NamedSource


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that is known. size: bytes; context: tokens; sampling: fields of SamplingParams.

    None: not known or not set. sha256: of its file; part_sha256: of its parts in their order, if it comes in
    several. draft: name of a smaller model that guesses for it. files: what the Hub says of each file, where
    it was asked; the model is a folder if `folder`.
    """

    name: str
    sources: tuple[Source, ...]
    description: str = ""
    licence: str = ""
    size: int | None = None
    sha256: str | None = None
    context: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    template_vars: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    template: str | None = None
    quantization: str | None = None
    draft: str | None = None
    part_sha256: tuple[str, ...] = ()
    files: tuple[HubFile, ...] = ()
    folder: bool = False

    @property
    def file(self) -> str | None:
        """The name of the file to open, of a download; None if there is none, or it is not known yet."""
        for source in self.sources:
            if isinstance(source, HuggingFaceSource):
                return PurePosixPath(source.file).name or None
            if isinstance(source, PyPISource):
                return PurePosixPath(source.member).name
        return None

    @property
    def parts(self) -> tuple[HubFile, ...]:
        """The files of a download, the one to open first. Their paths are those of the first source."""
        if self.files:
            return self.files
        source = next(
            (each for each in self.sources if isinstance(each, (HuggingFaceSource, PyPISource))), None
        )
        if source is None or self.file is None:
            return ()
        path = source.file if isinstance(source, HuggingFaceSource) else source.member
        names = part_names(path)
        if len(names) == 1:
            return (HubFile(path, self.size, self.sha256),)
        known = self.part_sha256 if len(self.part_sha256) == len(names) else (None,) * len(names)
        return tuple(HubFile(name, None, sha256) for name, sha256 in zip(names, known, strict=True))

    @property
    def is_fetched(self) -> bool:
        """Whether it comes from somewhere else, not from this machine."""
        return any(isinstance(source, (HuggingFaceSource, PyPISource)) for source in self.sources)

    @property
    def is_open(self) -> bool:
        """Whether the Hub has to be asked which files it is, and how large."""
        return self.is_fetched and self.file is None

    @property
    def facts(self) -> list[str]:
        """What one wants to know before it is downloaded: its size and licence, as far as they are known."""
        count = f"{len(self.parts)} files" if len(self.parts) > 1 and not self.folder else ""
        return [fact for fact in (units.size(self.size) if self.size else "", count, self.licence) if fact]
