"""The results of a batch: a file that a rerun goes on with."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ...file_locks import try_lock
from ..errors import CliError
from .lines import key_of

_BEGINNING = b'{"index": '
"""How each result begins."""


def finished(path: Path) -> dict[str, str | None]:
    """Ids that have a result without error in a file of results, each with the fingerprint of the line that
    was answered (None: it has none). Other lines count for nothing.
    """
    done: dict[str, str | None] = {}
    with path.open("rb") as file:
        for line in file:
            try:
                result = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(result, dict) and "id" in result and "text" in result and "error" not in result:
                done[key_of(result["id"])] = result.get("line")
    return done


class ResultFile:
    """Results appended to a regular file, each in one write. A last line that a crash has torn goes first."""

    def __init__(self, path: Path) -> None:
        """CliError: it cannot be written, or another batch is writing it."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._failed(error) from error
        if not try_lock(self._fd):
            os.close(self._fd)
            raise CliError("output", f"another batch is writing to {path}")
        self._end_last_line()
        self.done = finished(path)

    def append(self, line: str) -> None:
        """Add a line."""
        data = memoryview(f"{line}\n".encode("utf-8", "replace"))
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)

    def _failed(self, error: OSError) -> CliError:
        return CliError("output", f"cannot write {self.path}: {error.strerror}")

    def _end_last_line(self) -> None:
        """Give a last line its end if it is whole, and take it away if it is torn.

        CliError: it is none of ours, but of a file that was named by mistake.
        """
        end = size = os.fstat(self._fd).st_size
        while end:
            start = max(0, end - (1 << 16))
            newline = os.pread(self._fd, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end == size:
            return
        begun = os.pread(self._fd, len(_BEGINNING), end)
        if begun.strip(b"\0") and not _BEGINNING.startswith(begun):  # a power cut can leave zeros
            os.close(self._fd)
            problem = "ends in what is no result of a batch, and stays as it is; name another output"
            raise CliError("output", f"{self.path} {problem}")
        if begun == _BEGINNING and _is_json(os.pread(self._fd, size - end, end)):
            self.append("")
        else:
            os.ftruncate(self._fd, end)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
