"""Whether a model that is here is what it should be: by the registry's sha256, else by what came.

Where the registry has no sha256, `FILE.json` beside a downloaded FILE says what it was: a later damage shows.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from .. import units
from ..errors import UserError
from ..files import TextError, read_text, write_private
from ..registry import NotDownloadedError, Registry, ResolvedModel
from .errors import DownloadError
from .part import sha256_of
from .progress import Meter, ProgressCallback


class Checked(NamedTuple):
    """A model's file against what is known of it. path: the file; reason: a sentence.

    unknown: there is nothing to check it against.
    """

    path: Path
    state: Literal["verified", "damaged", "unknown"]
    reason: str


class Origin(NamedTuple):
    """What a downloaded file was when it came. checked: its server, or its package, gave a sha256."""

    sha256: str
    checked: bool


def check(registry: Registry, name: str, progress: ProgressCallback | None = None) -> Checked:
    """Read a model's file and compare. UnknownModelError, NotDownloadedError; DownloadError: unreadable."""
    entry = registry.entry(name)
    target = registry.target(entry)
    path = registry.path_of(entry)
    if path is None:
        if target is None or not os.path.isfile(target):
            raise NotDownloadedError(registry.absent(entry), entry)
        path = target
    if os.path.isdir(path):
        return Checked(path, "unknown", "a folder has nothing to be checked against")
    origin = origin_of(path) if path == target else None
    expected = entry.sha256 or (origin.sha256 if origin is not None else None)
    try:
        size = path.stat().st_size
        if entry.size is not None and size != entry.size:
            said = f"it has {units.size(size)}, not {units.size(entry.size)}"
            return Checked(path, "damaged", said)
        if expected is None:
            return Checked(path, "unknown", "nothing is known of it to check it against")
        found = sha256_of(path, Meter(progress))
    except OSError as error:
        raise DownloadError(f"cannot read {path}: {error.strerror}") from error
    if found != expected:
        return Checked(path, "damaged", f"its sha256 is {found}, not {expected}")
    reason = "its sha256 is right" if entry.sha256 else "it is as it came"
    return Checked(path, "verified", reason)


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
