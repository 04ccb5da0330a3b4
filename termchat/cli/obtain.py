"""Find the model that was asked for, and download it if that is wanted."""

from __future__ import annotations

from ..registry import NotDownloadedError, Registry, ResolvedModel
from ..registry_file import ModelEntry
from .console import Console
from .errors import CliError


def obtain(console: Console, registry: Registry, name: str | None, *, yes: bool) -> ResolvedModel:
    """The model of that name or path. UnknownModelError, NotDownloadedError, DownloadError, PathError."""
    try:
        return registry.resolve(name)
    except NotDownloadedError as error:
        if registry.target(error.entry) is None:  # a file of the user's own that is missing
            raise
        if not yes and not _wanted(console, registry, error.entry):
            raise CliError("model_not_downloaded", f"{error}, or add --yes") from error
        from .pull import pull

        pull(console, registry, error.entry)
    return registry.resolve(name)


def _wanted(console: Console, registry: Registry, entry: ModelEntry) -> bool:
    """Ask on a terminal; without one only the default model comes unasked."""
    from .pull import described

    if console.stdin_kind == "terminal" and console.messages.is_terminal:
        return console.ask(f"{described(entry)} is not downloaded yet. Download it?")
    return entry.name == registry.default
