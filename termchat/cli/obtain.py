"""Find the model that was asked for, and download it if that is wanted."""

from __future__ import annotations

import time

from ..download.progress import Progress, format_bytes, format_progress
from ..registry import NotDownloadedError, Registry, ResolvedModel
from ..registry_file import ModelEntry
from .console import Console
from .errors import CliError

BAR_CELLS = 20
LINE_SECONDS = 5.0
"""Where the progress is no terminal it is a line now and then."""


class ProgressLine:
    """Progress of a download on standard error: one line that changes, or lines every few seconds."""

    def __init__(self, console: Console) -> None:
        self._messages = console.messages
        self._phase: str | None = None
        self._shown = 0.0

    def __call__(self, progress: Progress) -> None:
        """Show an event."""
        if self._messages.is_terminal:
            self._messages.raw(f"\r\x1b[K{format_progress(progress, bar=BAR_CELLS)}")
            return
        now = time.monotonic()
        if progress.phase == self._phase and now - self._shown < LINE_SECONDS:
            return
        self._phase, self._shown = progress.phase, now
        self._messages.note(format_progress(progress))

    def close(self) -> None:
        """Leave the line."""
        if self._messages.is_terminal:
            self._messages.raw("\r\x1b[K")


def obtain(console: Console, registry: Registry, name: str | None, *, yes: bool) -> ResolvedModel:
    """The model of that name or path. UnknownModelError, NotDownloadedError, DownloadError, PathError."""
    try:
        return registry.resolve(name)
    except NotDownloadedError as error:
        if registry.target(error.entry) is None:  # a file of the user's own that is missing
            raise
        if not yes and not _wanted(console, registry, error.entry):
            raise CliError("model_not_downloaded", f"{error}, or add --yes") from error
        pull(console, registry, error.entry)
    return registry.resolve(name)


def pull(console: Console, registry: Registry, entry: ModelEntry) -> None:
    """Download a model, showing its progress. DownloadError, PathError, NotDownloadedError."""
    from ..download import ensure

    line = ProgressLine(console)
    console.messages.note(f"{_described(entry)} comes to {registry.models / entry.name}")
    try:
        path = ensure(registry, entry.name, line)
    finally:
        line.close()
    console.messages.note(f"{entry.name} is ready: {path}")


def _wanted(console: Console, registry: Registry, entry: ModelEntry) -> bool:
    """Ask on a terminal; without one only the default model comes unasked."""
    if console.stdin_kind == "terminal" and console.messages.is_terminal:
        return console.ask(f"{_described(entry)} is not downloaded yet. Download it?")
    return entry.name == registry.default


def _described(entry: ModelEntry) -> str:
    known = [format_bytes(entry.size) if entry.size is not None else "", entry.licence]
    details = ", ".join(part for part in known if part)
    return f"the model {entry.name} ({details})" if details else f"the model {entry.name}"
