"""How what goes wrong looks from outside: a code, a sentence, an exit code. docs/errors.md lists them all."""

from __future__ import annotations

import errno
import os
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
    "grammar": USAGE,
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
    "NoSuchModelError": "model_unknown",
    "DownloadError": "download",
    "SettingError": "usage",
    "ConversationIdError": "usage",
    "ConversationBusyError": "busy",
    "StoreError": "store",
    "PathError": "path",
    "ConstraintError": "grammar",
    "TextError": "usage",
    "OutputError": "output",
}
"""Codes of the application's own errors, by the name of the class: their modules are not loaded for it."""

FILES = "the system allows this program too few open files; raise the limit (ulimit -n)"
THREADS = "the system allows this program too few threads; raise the limit (ulimit -u, or the container's)"
MEMORY = "the system gives this program too little memory; free some, or raise the limit (ulimit -v)"

_BY_PLACE = (errno.EIO, errno.ESTALE, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM)
"""A disk or a network file system that fails, or a place that is closed."""

_BY_NUMBER = {errno.EMFILE: FILES, errno.ENFILE: FILES, errno.EAGAIN: THREADS, errno.ENOMEM: MEMORY}
_BY_WORDS = {
    "can't start new thread": THREADS,
    "can't allocate lock": MEMORY,
    "cannot allocate memory": MEMORY,  # the dynamic loader, on a library
    "failed to map segment": MEMORY,
}


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


def engine_failure(
    error: EngineError, model: str, mend: str | None = None, template: str | None = None
) -> CliError:
    """An error of the engine; one of the chat template with the model it came with, and a way round it.

    mend: what helps against it. template: what was asked for in place of the model's own.
    """
    if error.code == "template":
        from engine import is_template

        message = error.message
        if template is not None and not is_template(template) and template not in message:
            message = message.replace("the chat template", f"the chat template {template}", 1)
        return CliError(error.code, f"{model}: {message} (--template gives it another, --raw does without)")
    return CliError(error.code, f"{error.message}; {mend}" if mend is not None else error.message)


def failure_of(error: UserError) -> Failure:
    """The failure that an error stands for."""
    if isinstance(error, CliError):
        return Failure(error.code, str(error))
    names = (kind.__name__ for kind in type(error).__mro__)
    return Failure(next((CODES[name] for name in names if name in CODES), "failed"), str(error))


def not_installed(error: ImportError) -> str:
    """The sentence on a library that is not there, or is broken."""
    return f"a library that termchat needs can't be imported: {error}; install it again"


def refused(error: BaseException) -> str | None:
    """Which limit an error comes from, itself or what it was raised from; None: from none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError):
            return MEMORY
        if isinstance(seen, OSError) and not isinstance(seen, BlockingIOError) and seen.errno in _BY_NUMBER:
            return _BY_NUMBER[seen.errno]
        place = seen.filename if isinstance(seen, OSError) and seen.errno in _BY_PLACE else None
        if isinstance(seen, OSError) and isinstance(place, (str, bytes)):
            return f"the system refuses {os.fsdecode(place)}: {seen.strerror}"
        if isinstance(seen, (RuntimeError, ImportError, OSError)):
            words = str(seen).lower()
            for part, sentence in _BY_WORDS.items():
                if part in words:
                    return sentence
        seen = seen.__cause__ or seen.__context__
    return None
