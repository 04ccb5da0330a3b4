"""Models in folders that hold GGUF files under their own names: LM Studio's, and llama.cpp's cache."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ..files import TextError, read_text
from ..hub.split import PART, numbered, stem_of
from .found import Found, cache_home, files_below, from_environment, home, size_of, together

_CONFIG_FILES = ("settings.json", ".internal/settings.json")


def lm_studio() -> Iterator[Found]:
    """LM Studio's: lmstudio:OWNER/REPOSITORY/FILE, or without the file for a folder with safetensors."""
    seen: set[str] = set()
    for folder in _lm_studio_folders():
        for found in in_folder(folder, "lmstudio", "LM Studio"):
            if found.name not in seen:
                seen.add(found.name)
                yield found


def llama_cpp() -> Iterator[Found]:
    """What llama.cpp has downloaded: llamacpp:FILE."""
    folder = from_environment("LLAMA_CACHE")
    if folder is None:
        own, base = home(), cache_home()
        if sys.platform == "darwin" and own is not None:
            base = own / "Library" / "Caches"
        folder = base / "llama.cpp" if base is not None else None
    if folder is not None:
        yield from in_folder(folder, "llamacpp", "llama.cpp")


def in_folder(folder: Path, scheme: str, program: str) -> Iterator[Found]:
    """The models below a folder, named by their paths in it; of a split one its first part."""
    from engine.loading.companions import is_no_model  # the first frame needs no engine

    files = {str(PurePosixPath(os.path.relpath(each.path, folder))): each for each in files_below(folder)}
    for name, entry in files.items():
        lower = name.lower()
        if lower.endswith("config.json") and PurePosixPath(lower).name == "config.json":
            yield from _safetensors(folder, name, files, scheme, program)
        if not lower.endswith(".gguf") or is_no_model(stem_of(name)):
            continue
        part = PART.fullmatch(name)
        if part is None:
            size, problem = size_of(entry)
            yield Found(f"{scheme}:{name}", program, Path(entry.path), size, problem)
        elif int(part["number"]) == 1:
            count = int(part["count"])
            parts = numbered(part["stem"], count, part["suffix"])
            size, problem = together(files[each] for each in parts if each in files)
            missing = next((number for number, each in enumerate(parts, 1) if each not in files), None)
            if missing is not None:
                problem = f"part {missing} of {count} is not there"
            yield Found(f"{scheme}:{name}", program, Path(entry.path), size, problem)


def _safetensors(
    folder: Path, config: str, files: dict[str, os.DirEntry[str]], scheme: str, program: str
) -> Iterator[Found]:
    here = str(PurePosixPath(config).parent)
    weights = [
        entry
        for name, entry in files.items()
        if name.endswith(".safetensors") and str(PurePosixPath(name).parent) == here
    ]
    if weights and here != ".":
        size, problem = together(weights)
        yield Found(f"{scheme}:{here}", program, folder / here, size, problem)


def _lm_studio_folders() -> list[Path]:
    """Where LM Studio keeps models: where its settings say, and where it does without being told."""
    own = home()
    if own is None:
        return []
    homes = [own / ".lmstudio", own / ".cache" / "lm-studio"]
    pointed = _first_line(own / ".lmstudio-home-pointer")
    if pointed is not None:
        homes.insert(0, pointed)
    named = [
        folder for each in homes for file in _CONFIG_FILES if (folder := _named_in(each / file)) is not None
    ]
    folders = dict.fromkeys([*named, *(each / "models" for each in homes)])
    real: dict[str, Path] = {}
    for folder in folders:
        real.setdefault(os.path.realpath(folder), folder)
    return list(real.values())


def _first_line(file: Path) -> Path | None:
    try:
        lines = read_text(file, 4096).text.splitlines()
    except (OSError, TextError):
        return None
    return _folder(lines[0].strip()) if lines else None


def _named_in(file: Path) -> Path | None:
    try:
        settings = json.loads(read_text(file).text)
    except (OSError, TextError, ValueError, RecursionError):
        return None
    return _folder(settings.get("downloadsFolder")) if isinstance(settings, dict) else None


def _folder(place: object) -> Path | None:
    return Path(place) if isinstance(place, str) and os.path.isabs(place) and "\0" not in place else None
