"""Where termchat keeps its files, by the customs of the platform (XDG folders on Linux)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import platformdirs

from .files import PathError


@dataclass(frozen=True, slots=True)
class Paths:
    """The four folders of the application. None is made here: whoever writes a file makes its folder."""

    config: Path
    data: Path
    cache: Path
    state: Path

    @classmethod
    def default(cls) -> Self:
        """The folders of this user. PathError: there is no home folder, so their place is not known."""
        try:
            found = {
                "config": platformdirs.user_config_path("termchat", appauthor=False),
                "data": platformdirs.user_data_path("termchat", appauthor=False),
                "cache": platformdirs.user_cache_path("termchat", appauthor=False),
                "state": platformdirs.user_state_path("termchat", appauthor=False),
            }
        except RuntimeError as error:  # new versions say it so, old ones leave "~" in the path
            raise PathError("there is no home folder; set HOME") from error
        if not all(folder.is_absolute() for folder in found.values()):
            raise PathError("there is no home folder; set HOME")
        return cls(**found)

    @property
    def config_file(self) -> Path:
        """The user's settings."""
        return self.config / "config.toml"

    @property
    def registry_file(self) -> Path:
        """The user's own models, laid over the built-in ones."""
        return self.config / "models.toml"

    @property
    def themes(self) -> Path:
        """The user's own themes."""
        return self.config / "themes"

    @property
    def database(self) -> Path:
        """Conversations."""
        return self.data / "termchat.db"

    @property
    def models(self) -> Path:
        """Downloaded models, one folder each."""
        return self.cache / "models"

    @property
    def log_file(self) -> Path:
        """The log; older ones beside it."""
        return self.state / "termchat.log"

    @property
    def peaks(self) -> Path:
        """Peak bandwidths that were measured."""
        return self.state / "peaks.json"


def data_file(name: str) -> Path:
    """A file shipped with termchat (`models.toml`, `themes`), of the checkout or the installed package."""
    package = Path(__file__).resolve().parent
    checkout = package.parent
    if all(os.path.isfile(checkout / each) for each in ("pyproject.toml", "models.toml")):
        return checkout / name
    return package / "_data" / name
