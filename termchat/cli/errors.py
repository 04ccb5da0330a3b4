"""How what goes wrong looks from outside: a code, a sentence, an exit code. docs/errors.md lists them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UserError

if TYPE_CHECKING:
    from engine import EngineError

OK = 0
FAILED = 1
USAGE = 2
NO_MODEL = 3
TOO_LONG = 4
READER_CLOSED = 141

EXIT_CODES = {
    "usage": USAGE,
    "empty_prompt": USAGE,
    "invalid_request": USAGE,
    "model_unknown": NO_MODEL,
    "model_not_downloaded": NO_MODEL,
    "prompt_too_long": TOO_LONG,
    "never_fits": TOO_LONG,
}
"""The exit code of an error code; all others fail with 1."""

CODES = {
    "UnknownModelError": "model_unknown",
    "NotDownloadedError": "model_not_downloaded",
    "RegistryError": "registry",
    "DownloadError": "download",
    "ConversationIdError": "usage",
    "ConversationBusyError": "busy",
    "StoreError": "store",
    "PathError": "path",
    "OutputError": "output",
}
"""Codes of the application's own errors, by the name of the class: their modules are not loaded for it."""


class CliError(UserError):
    """An error that ends the program, or one line of a batch. `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Failure(NamedTuple):
    """An error as scripts see it."""

    code: str
    message: str

    @property
    def exit_code(self) -> int:
        """For the shell."""
        return EXIT_CODES.get(self.code, FAILED)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"code": self.code, "message": self.message}


def engine_failure(error: EngineError, model: str, mend: str | None = None) -> CliError:
    """An error of the engine; one of the chat template with the model it came with, and a way round it.

    mend: what helps against it.
    """
    if error.code == "template":
        return CliError(error.code, f"{model}: {error.message} (--raw does without it)")
    return CliError(error.code, f"{error.message}; {mend}" if mend is not None else error.message)


def failure_of(error: UserError) -> Failure:
    """The failure that an error stands for."""
    if isinstance(error, CliError):
        return Failure(error.code, str(error))
    names = (kind.__name__ for kind in type(error).__mro__)
    return Failure(next((CODES[name] for name in names if name in CODES), "failed"), str(error))
