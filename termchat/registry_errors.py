"""What is wrong with a model's name, or why it is not to be had."""

from __future__ import annotations

from .errors import UserError
from .model_entry import ModelEntry


class RegistryError(UserError):
    """A model's name, entry or file is not usable."""


class UnknownModelError(RegistryError):
    """Neither a registered name nor a file or folder."""


class NotDownloadedError(RegistryError):
    """A registered model that is not on this machine; `entry` says what it is and how large."""

    def __init__(self, message: str, entry: ModelEntry) -> None:
        super().__init__(message)
        self.entry = entry
