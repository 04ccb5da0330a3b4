"""Models of the Hub in our own folder, and the note in each that says what it is.

<models>/_hf/OWNER/REPOSITORY/COMMIT/WHICH/ holds the files and `.model.json`, which is written before the
first byte comes: what is missing shows by the files themselves. No registered name begins with `_`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..files import read_text, write_private
from ..model_entry import HuggingFaceSource, ModelEntry
from . import PREFIX
from .listing import HubFile, Listing, read_file, total_size
from .name import MAIN, SAFETENSORS, HubName
from .quantization import answers, label_of

if TYPE_CHECKING:
    from .choice import Variant

FOLDER = "_hf"
_NOTE = ".model.json"
_LARGEST_NOTE = 4 << 20


def entry_of(name: HubName, listing: Listing, variant: Variant) -> ModelEntry:
    """The entry of a model that was chosen."""
    return _entry(
        HubName(listing.repo, variant.which, name.revision), listing.commit, listing.licence, variant.files
    )


def open_entry(name: HubName) -> ModelEntry:
    """The entry of a model of which nothing is known but its name."""
    return ModelEntry(str(name), (HuggingFaceSource(name.repo, "", name.revision),))


def folder_of(models: Path, entry: ModelEntry) -> Path | None:
    """Where a model of the Hub lies or lands; None for another model, and while its files are not known."""
    source = entry.sources[0] if entry.name.startswith(PREFIX) and entry.files else None
    if not isinstance(source, HuggingFaceSource):
        return None
    which = HubName.parse(entry.name).which.replace("/", "--")
    return models / FOLDER / source.repo / source.revision / which


def write_note(folder: Path, entry: ModelEntry) -> None:
    """Note what is to lie in a folder. OSError."""
    source = entry.sources[0]
    assert isinstance(source, HuggingFaceSource), "it comes from the Hub"
    note = {
        "name": entry.name,
        "commit": source.revision,
        "licence": entry.licence,
        "files": [file._asdict() for file in entry.files],
    }
    write_private(folder / _NOTE, json.dumps(note, indent=1) + "\n")


def kept(models: Path) -> list[ModelEntry]:
    """The models of the Hub in our folder, the one that came last first.

    Of those that came for the same name an older one is called by its commit.
    """
    found: list[tuple[float, ModelEntry]] = []
    for note in _notes(models / FOLDER):
        with suppress(OSError, UserError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            entry = _read(json.loads(read_text(note, _LARGEST_NOTE).text))
            # Else it is a copy from elsewhere, or a download that was refused before anything came.
            if folder_of(models, entry) == note.parent and bytes_here(note.parent):
                found.append((note.stat().st_mtime, entry))
    entries: dict[str, ModelEntry] = {}
    for _, entry in sorted(found, key=lambda pair: (-pair[0], pair[1].name)):
        if entry.name in entries:
            source = entry.sources[0]
            assert isinstance(source, HuggingFaceSource), "it comes from the Hub"
            entry = replace(entry, name=str(HubName.parse(entry.name)._replace(revision=source.revision)))
        entries.setdefault(entry.name, entry)
    return list(entries.values())


def _notes(folder: Path) -> list[Path]:
    try:
        return list(folder.glob(f"*/*/*/*/{_NOTE}"))
    except OSError:  # a folder that may not be looked into
        return []


def matching(name: HubName, entries: list[ModelEntry]) -> list[ModelEntry]:
    """Those of the entries that a name asks for, in their order."""
    return [entry for entry in entries if _matches(name, entry)]


def _matches(name: HubName, entry: ModelEntry) -> bool:
    has, source = HubName.parse(entry.name), entry.sources[0]
    assert isinstance(source, HuggingFaceSource), "it comes from the Hub"
    if has.repo.lower() != name.repo.lower():
        return False
    if name.revision not in (has.revision, source.revision):
        return False
    if name.wants_file:
        return any(name.which in (file.path, file.name) for file in entry.files)
    if name.which.lower() == SAFETENSORS:
        return entry.folder
    return not name.which or answers(has.which, name.which) or answers(label(entry), name.which)


def label(entry: ModelEntry) -> str:
    """The quantization that a model's file is named by; "" for a folder."""
    return "" if entry.folder or not entry.files else label_of(entry.files[0].path)


def _read(note: dict[str, Any]) -> ModelEntry:
    name = HubName.parse(note["name"] if str(note["name"]).startswith(PREFIX) else "")
    files = tuple(file for file in map(read_file, note["files"]) if file is not None)
    if not files or len(files) != len(note["files"]):
        raise ValueError("no files")
    return _entry(name, str(note["commit"]), str(note["licence"]), files)


def _entry(name: HubName, commit: str, licence: str, files: tuple[HubFile, ...]) -> ModelEntry:
    return ModelEntry(
        name=str(name),
        sources=(HuggingFaceSource(name.repo, files[0].path, commit),),
        description=f"of the Hub{f', revision {name.revision[:12]}' if name.revision != MAIN else ''}",
        licence=licence,
        size=total_size(files),
        files=files,
        folder=name.which == SAFETENSORS,
    )


def bytes_here(folder: Path) -> int:
    """Bytes of an unfinished download: what has landed, and parts."""
    total = 0
    with suppress(OSError):
        for each in os.scandir(folder):
            if (
                os.path.isfile(each.path)
                and not each.name.endswith(".json")
                and not each.name.startswith(".")
            ):
                total += each.stat().st_size
    return total
