"""What can go wrong with the store, and every error of SQLite as one of these."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ..errors import UserError


class StoreError(UserError):
    """The store cannot do what was asked. Nothing was changed."""


class StoreUnavailableError(StoreError):
    """The database itself cannot be read or written now: a lock, a full disk, damage, missing rights."""


class StoreDamagedError(StoreUnavailableError):
    """The file is not what SQLite has written; other parts of it may be."""


class StoreBusyError(StoreUnavailableError):
    """Another process kept the database locked for longer than we wait."""


class StoreReadOnlyError(StoreUnavailableError):
    """The database may be read but not written."""


class ConversationIdError(StoreError):
    """No conversation can have that id."""


class NotFoundError(StoreError):
    """There is no such conversation or message."""


class ConversationBusyError(StoreError):
    """Another process is writing a reply, `reply_id`, where a message was to be added."""

    def __init__(self, conversation: str, reply_id: int) -> None:
        super().__init__(
            f"another termchat is still answering in the conversation {conversation!r}; "
            "try again when it is done"
        )
        self.reply_id = reply_id


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds a lock."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def damaged(path: Path, reason: str) -> StoreDamagedError:
    """The error of a file that is not what SQLite has written."""
    return StoreDamagedError(f"{path} is damaged or no database ({reason}); move it away to start a new one")


def error_of(error: sqlite3.Error, path: Path) -> StoreError:
    """SQLite's error as one plain sentence."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # 0: raised by the Python module itself
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusyError(f"{path} is locked by another program")
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return damaged(path, str(error))
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailableError(f"cannot write {path}: the disk is full")
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailableError(
            f"{path} cannot be read or written ({error}): a quota, a limit on the size of files (ulimit -f), "
            "or a failing disk"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreReadOnlyError(f"{path} cannot be written, so nothing is saved ({error})")
    if code == sqlite3.SQLITE_ERROR and "no such module: fts5" in str(error):
        return StoreError("this Python's SQLite has no full-text search (FTS5); another Python is needed")
    return StoreUnavailableError(f"{path}: {error}")
