"""Logging: to a file in the state folder, private and rotated; never to the terminal."""

from __future__ import annotations

import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

from .files import PathError, open_private, private_folder
from .sanitize import escape

_LARGEST, _OLDER = 1_000_000, 3  # bytes of one file, files kept beside it


def start_logging(file: Path, level: str = "warning") -> None:
    """Send all log records and Python warnings of this process to `file`. Called once, before anything logs.

    level: one of those of the setting log_level.
    PathError: the file cannot be written. Nothing is logged then, and still nothing reaches the terminal.
    """
    root = logging.getLogger()
    logging.raiseExceptions = False  # a full disk must not print tracebacks over the screen
    logging.captureWarnings(True)
    root.setLevel(level.upper())
    try:
        private_folder(file.parent)
        handler: logging.Handler = _PrivateFile(file, maxBytes=_LARGEST, backupCount=_OLDER, encoding="utf-8")
    except (OSError, PathError) as error:
        root.handlers[:] = [logging.NullHandler()]
        if isinstance(error, PathError):
            raise
        raise PathError(f"cannot write the log {file}: {error.strerror}") from error
    handler.setFormatter(
        _Harmless("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")
    )
    root.handlers[:] = [handler]


class _Harmless(logging.Formatter):
    """Records that can be read on a terminal with `cat`, whatever a library or a model's file had to say."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


class _PrivateFile(RotatingFileHandler):
    """A rotating log whose file only its owner can read, from its first moment."""

    def _open(self) -> Any:
        def opener(path: str, flags: int) -> int:
            return open_private(path, flags)

        file: IO[str] = open(  # noqa: SIM115 - the handler closes it
            os.fspath(self.baseFilename),
            self.mode,
            encoding=self.encoding,
            errors="backslashreplace",
            opener=opener,
        )
        return file

    def shouldRollover(self, record: logging.LogRecord) -> int:  # noqa: N802 - the name of the base class
        # A device (a log linked to /dev/null) is not renamed away.
        return int(os.path.isfile(self.baseFilename) and super().shouldRollover(record))
