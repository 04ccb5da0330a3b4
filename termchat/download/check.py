"""Whether a model that is here is what it should be: by the registry's sha256, else by what came.

Where the registry has no sha256, `FILE.json` beside a downloaded FILE says what it was: a later damage shows.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from .. import units
from ..errors import UserError
from ..files import TextError, read_text, write_private
from ..hub.listing import HubFile
from ..model_entry import ModelEntry
from ..registry import Registry
from ..registry_errors import NotDownloadedError
from ..resolved_model import ResolvedModel
from .errors import DownloadError
from .part import git_blob_of, sha256_of
from .progress import Meter, ProgressCallback

State = Literal["verified", "damaged", "unknown"]

_NAMED = 4
"""Damaged files that are named."""


class Checked(NamedTuple):
    """A model's file against what is known of it. path: the file; reason: a sentence.

    unknown: there is nothing to check it against.
    """

    path: Path
    state: State
    reason: str


class Origin(NamedTuple):
    """What a downloaded file was when it came. checked: its server, or its package, gave a sha256."""

    sha256: str
    checked: bool


def check(registry: Registry, name: str, progress: ProgressCallback | None = None) -> Checked:
    """Read a model's files and compare. UnknownModelError, NotDownloadedError; DownloadError: unreadable."""
    found = registry.without_entry(name)
    if found is not None and found.elsewhere:
        return _check_named_by_hash(found.path, Meter(progress))
    entry = registry.entry(name)
    path, target = registry.path_of(entry), registry.target(entry)
    files = registry.files_of(entry)
    if path is None or path == target:
        if target is None or not any(map(os.path.isfile, files)):
            raise NotDownloadedError(registry.absent(entry), entry)
        return _check_parts(entry, files, target, Meter(progress))
    if os.path.isdir(path):
        return Checked(path, "unknown", "a folder has nothing to be checked against")
    if entry.sha256 is None and entry.size is None:
        return _check_named_by_hash(path, Meter(progress))
    known = HubFile(path.name, entry.size, entry.sha256)
    state, reason = _check_file(path, known, None, Meter(progress))
    return Checked(path, state, reason)


def _check_named_by_hash(path: Path, meter: Meter) -> Checked:
    """Check another program's file: Hugging Face and Ollama name contents by their sha256."""
    names = (path.name, os.path.basename(os.path.realpath(path)))
    named = next(filter(None, (re.fullmatch(r"(?:sha256-)?([0-9a-f]{64})", name) for name in names)), None)
    if named is None or os.path.isdir(path):
        return Checked(path, "unknown", "nothing is known of it to check it against")
    state, reason = _check_file(path, HubFile(path.name, None, named[1]), None, meter)
    return Checked(path, state, reason)


def _check_parts(entry: ModelEntry, files: list[Path], target: Path, meter: Meter) -> Checked:
    """The worst of the files of a download; what is damaged is named."""
    found: list[tuple[State, str]] = []
    for file, part in zip(files, entry.parts, strict=True):
        state, reason = _check_file(file, part, origin_of(file), meter)
        found.append((state, reason if len(files) == 1 or state == "verified" else f"{file.name}: {reason}"))
    for worst in ("damaged", "unknown"):
        reasons = [reason for state, reason in found if state == worst]
        if reasons:
            return Checked(target, worst, "; ".join(reasons[:_NAMED]))
    return Checked(
        target, "verified", found[0][1] if len(files) == 1 else f"all {len(files)} files are right"
    )


def _check_file(file: Path, known: HubFile, origin: Origin | None, meter: Meter) -> tuple[State, str]:
    expected = known.sha256 or (origin.sha256 if origin is not None and known.blob is None else None)
    try:
        if not os.path.isfile(file):
            return "damaged", "it is not there"
        size = file.stat().st_size
        if known.size is not None and size != known.size:
            return "damaged", f"it has {units.size(size)}, not {units.size(known.size)}"
        if expected is None and known.blob is not None:
            right = git_blob_of(file) == known.blob
            return (
                ("verified", "it is as listed") if right else ("damaged", "it is not the file that is listed")
            )
        if expected is None:
            return "unknown", "nothing is known of it to check it against"
        found = sha256_of(file, meter)
    except OSError as error:
        raise DownloadError(f"cannot read {file}: {error.strerror}") from error
    if found != expected:
        return "damaged", f"its sha256 is {found}, not {expected}"
    return "verified", "its sha256 is right" if known.sha256 else "it is as it came"


def damaged_parts(registry: Registry, entry: ModelEntry, meter: Meter) -> list[int]:
    """Which of a download's files are not what they must be. DownloadError."""
    files = registry.files_of(entry)
    return [
        number
        for number, (file, part) in enumerate(zip(files, entry.parts, strict=True))
        if _check_file(file, part, origin_of(file), meter)[0] == "damaged"
    ]


def mend(registry: Registry, model: ResolvedModel) -> str | None:
    """What helps a model that cannot be loaded because its download is damaged. Reads its file."""
    if model.entry is None or model.path != registry.target(model.entry):
        return None
    with suppress(UserError):
        if check(registry, model.name).state == "damaged":
            return f"the file is damaged: termchat models pull {model.name} brings it again"
    return None


def origin_of(path: Path) -> Origin | None:
    """What was noted of a download; None where the registry's own sha256 speaks for it."""
    with suppress(OSError, TextError, ValueError, RecursionError):
        noted = json.loads(read_text(_note(path)).text)
        if isinstance(noted, dict) and isinstance(noted.get("sha256"), str):
            return Origin(noted["sha256"], noted.get("checked") is True)
    return None


def remember(path: Path, sha256: str, source: str, *, checked: bool) -> None:
    """Note what has come. OSError."""
    note = {"sha256": sha256, "source": source, "checked": checked}
    write_private(_note(path), json.dumps(note) + "\n")


def forget(path: Path) -> None:
    """Remove the note of an earlier file."""
    _note(path).unlink(missing_ok=True)


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
