"""The model that was asked for, downloaded if that is wanted, with the progress on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model_entry import ModelEntry
from ..paths import Paths
from ..registry import Registry
from ..registry_errors import NotDownloadedError
from ..resolved_model import ResolvedModel
from .console import Console
from .errors import CliError
from .progress import ProgressLine

if TYPE_CHECKING:
    from ..download import Checked
    from ..download.progress import Progress

BAR_CELLS = 20


class DownloadLine(ProgressLine):
    """The progress of a download, as its events tell it; a new phase is said at once."""

    def __init__(self, console: Console) -> None:
        super().__init__(console.messages)
        self._bar = BAR_CELLS if console.messages.draws else 0
        self._phase: str | None = None

    def __call__(self, progress: Progress) -> None:
        """Show an event."""
        from ..download.progress import format_progress

        self.show(format_progress(progress, bar=self._bar), at_once=progress.phase != self._phase)
        self._phase = progress.phase


def load_registry(console: Console) -> Registry:
    """The known models; what is wrong in their files is said on standard error."""
    registry = Registry.load(Paths.default())
    for warning in registry.warnings:
        console.messages.note(warning)
    return registry


def downloaded(console: Console, registry: Registry, name: str | None, *, yes: bool) -> ResolvedModel:
    """The model of that name or path. UnknownModelError, NotDownloadedError, DownloadError, PathError."""
    try:
        return registry.resolve(name)
    except NotDownloadedError as error:
        entry = error.entry
        if not entry.is_fetched:  # a file of the user's own that is missing
            raise
        if entry.is_open and (yes or console.can_ask):
            entry = look_up(console, registry, entry.name)
        if not yes and not _wanted(console, registry, entry):
            raise CliError("model_not_downloaded", f"{error}, or add --yes") from error
        download(console, registry, entry)
    return registry.resolve(name)


def _wanted(console: Console, registry: Registry, entry: ModelEntry) -> bool:
    """Ask on a terminal; without one only the default model comes unasked."""
    if console.can_ask:
        return console.ask(f"{described(entry)} is not downloaded yet. Download it?")
    return entry.name == registry.default


def look_up(console: Console, registry: Registry, name: str) -> ModelEntry:
    """Ask the Hub what a name of it means here. UnknownModelError, DownloadError."""
    from ..download import Meter, look_up

    with DownloadLine(console) as line:
        return look_up(registry, name, Meter(line if console.messages.draws else None))


def download(console: Console, registry: Registry, entry: ModelEntry) -> None:
    """Download a model, showing its progress. DownloadError, PathError, NotDownloadedError."""
    from ..download import ensure, origin_of

    console.messages.note(f"{described(entry)} comes to {registry.folder_of(entry)}")
    with DownloadLine(console) as line:
        path = ensure(registry, entry if entry.files else entry.name, line)
    console.messages.note(f"{entry.name} is ready: {path}")
    origin = origin_of(path)
    if origin is not None and not origin.checked:
        known = "neither models.toml nor its server says what it must be"
        console.messages.note(
            f"{entry.name} could not be checked: {known}; what came has sha256 {origin.sha256}"
        )


def check(console: Console, registry: Registry, name: str) -> Checked:
    """Read a model's file and compare it with what is known. NotDownloadedError, DownloadError."""
    from ..download import check

    with DownloadLine(console) as line:
        return check(registry, name, line if console.messages.draws else None)


def repair(console: Console, registry: Registry, name: str) -> None:
    """Bring a damaged model again, showing the progress. DownloadError, PathError."""
    from ..download import repair

    with DownloadLine(console) as line:
        path = repair(registry, name, line)
    console.messages.note(f"{name} is ready: {path}")


def described(entry: ModelEntry) -> str:
    """The model with what one wants to know before downloading it."""
    details = ", ".join(entry.facts)
    return f"the model {entry.name} ({details})" if details else f"the model {entry.name}"
