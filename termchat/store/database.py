"""The database file: opened privately and safely, migrated, written in transactions."""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import UserError
from ..files import private_folder
from . import locks
from .database_file import guard, identity, is_missing, writable
from .errors import (
    StoreBusyError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
    damaged,
    error_of,
    is_busy,
)
from .schema import APPLICATION_ID, MIGRATIONS, Migrations, adopt, migrate, version_by_tables

log = logging.getLogger(__name__)


_NO_FILE = Path(os.devnull, "memory")


class Database:
    """One connection, usable from any thread. `notice` says why it is read-only, None if it is not."""

    def __init__(
        self, path: Path | None, migrations: Migrations = MIGRATIONS, busy_timeout: float = 15.0
    ) -> None:
        """Open the file, creating or migrating it; one that is not there and can't be made reads as empty.

        path: None keeps everything in memory, for this connection alone. StoreError, PathError: the file
        cannot be used at all.
        """
        self.notice: str | None = None
        self.path = Path(os.path.realpath(path)) if path is not None else _NO_FILE
        self._busy_timeout = busy_timeout
        self._lock = threading.RLock()
        self._vfs = ""
        self._restored: int | None = None
        self._for_writing = False
        self._identity: tuple[int, int] | None = None
        if path is None:
            self._begin_in_memory(migrations)
            return
        try:
            private_folder(path.parent)
            guard(self.path)
        except UserError as error:
            if not is_missing(path):
                raise
            self.notice = f"{error}, so nothing is saved"
            self._begin_in_memory(migrations)
            return
        if not locks.offered(self.path.parent):
            locks.remove_stale(self.path)
            self._vfs = f"&vfs={locks.DOTFILE}"
        with self._plain_errors():
            version = self._look(migrations)
            if self.notice is None and not writable(self.path):
                self.notice = f"{self.path} cannot be written, so nothing is saved"
            self._db = self._connect_readable()
        if self.notice is None:
            try:
                self._open_for_writing(migrations)
            except StoreBusyError:
                raise
            except StoreUnavailableError:  # a full disk: what can be read is, and each write tries again
                if version < len(migrations):
                    raise

    @property
    def in_memory(self) -> bool:
        """Whether there is no file, and no other connection."""
        return self.path == _NO_FILE

    def _begin_in_memory(self, migrations: Migrations) -> None:
        with self._plain_errors():
            self._db = self._connect("memory")
            self._db.execute("PRAGMA foreign_keys = ON")
            migrate(self._db, migrations)
        self._for_writing = True

    def _open_for_writing(self, migrations: Migrations = ()) -> None:
        """Exchange the connection for one that can write. StoreUnavailableError: then reading goes on."""
        readable = self._db
        with self._plain_errors():
            try:
                self._db = self._connect("rw")
                self._use_wal()
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.execute("PRAGMA foreign_keys = ON")
                self._db.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten, too
                if self._restored is not None:
                    adopt(self._db, migrations)
                try:
                    migrate(self._db, migrations)
                except sqlite3.OperationalError:  # the tables may be those of a later version than is said
                    if not adopt(self._db, migrations):
                        raise
                    migrate(self._db, migrations)
            except BaseException:
                self._db.close()
                self._db = readable
                raise
        self._for_writing = True
        self._identity = identity(self.path)
        readable.close()

    def query(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """The rows of a SELECT."""
        with self._lock, self._plain_errors():
            return self._db.execute(sql, values).fetchall()

    def version(self) -> int:
        """A number that changes when another connection has written, this program's own others included."""
        return int(self.query("PRAGMA data_version")[0][0])

    def rewrite(self) -> None:
        """Write the file anew, without a trace of what was deleted. StoreError: some of it may be left."""
        if self.notice is not None:
            raise StoreReadOnlyError(self.notice)
        with self._lock, self._plain_errors():
            self._db.execute("INSERT INTO message_fts(message_fts) VALUES ('optimize')")
            self._db.execute("VACUUM")
            left = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if left:
            raise StoreBusyError(
                f"another program reads {self.path}, so {self.path.name}-wal may still hold deleted text; "
                "purge again later"
            )

    @contextmanager
    def write(self, wait: float | None = None) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it or nothing. Inside another one it is part of that.

        wait: seconds to wait for another writer, instead of the usual. StoreReadOnlyError, StoreBusyError.
        """
        if self.notice is not None:
            raise StoreReadOnlyError(self.notice)
        with self._lock, self._plain_errors():
            if not self._for_writing:
                self._open_for_writing()
            if self._db.in_transaction:
                yield self._db
                return
            if identity(self.path) != self._identity:  # a file without a name is lost with this program
                raise StoreUnavailableError(
                    f"{self.path} was deleted, moved or replaced while it was in use; "
                    "put it back, or restart termchat"
                )
            self._begin(wait)
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite itself rolls back after some errors, a full disk for one
                    self._db.execute("ROLLBACK")
                raise

    def _begin(self, wait: float | None) -> None:
        patience = self._busy_timeout if wait is None else wait
        self._db.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        try:
            self._db.execute("BEGIN IMMEDIATE")
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {int(self._busy_timeout * 1000)}")

    def close(self) -> None:
        """End the connection. What is written stays; a second call does nothing."""
        with self._lock, self._plain_errors():
            self._db.close()

    def _connect(self, mode: str, path: Path | None = None) -> sqlite3.Connection:
        db = sqlite3.connect(
            f"file:{quote(os.fsencode(path or self.path))}?mode={mode}{self._vfs}",
            uri=True,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        db.row_factory = sqlite3.Row
        db.text_factory = _decode
        return db

    def _connect_readable(self) -> sqlite3.Connection:
        db = self._connect("ro")
        try:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:  # a WAL database in a folder where its -shm file cannot be made
            db.close()
            db = self._connect("ro&immutable=1")
        return db

    def _look(self, migrations: Migrations) -> int:
        """The schema's version, read without changing anything; sets `notice` if it is newer than ours, and
        `_restored` if it can be told by the tables alone.
        """
        db = self._connect_readable()
        try:
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            application = int(db.execute("PRAGMA application_id").fetchone()[0])
            tables = int(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
            if tables and (application != APPLICATION_ID or version <= 0):
                self._restored = version_by_tables(db, migrations)
        finally:
            db.close()
        if self._restored is not None:
            return self._restored
        if tables and application != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is the database of another program; move it away to use termchat's own"
            )
        if version < 0:
            raise damaged(self.path, f"its tables are no version's, and it says version {version}")
        if version > (known := len(migrations)):
            self.notice = (
                f"{self.path} was written by a newer termchat (schema {version}, this one knows {known}), "
                "so nothing is saved; update termchat"
            )
        return version

    def _use_wal(self) -> None:
        """Write-ahead logging. SQLite does not wait by itself when several processes switch at once."""
        deadline = time.monotonic() + self._busy_timeout
        while True:
            try:
                (journal,) = self._db.execute("PRAGMA journal_mode").fetchone()
                # Others who use the old journal could not go on, had this file a WAL for a moment only.
                if journal != "wal" and not self._wal_works():
                    self._use_no_wal()
                    return
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # shows whether it works
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    self._use_no_wal()
                    return
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _wal_works(self) -> bool:
        """Whether a database beside this one can have a WAL; also if it can't be found out."""
        try:
            with tempfile.TemporaryDirectory(prefix=".trial-", dir=self.path.parent) as folder:
                trial = self._connect("rwc", Path(folder) / "trial.db")
                try:
                    trial.execute("PRAGMA synchronous = OFF")
                    trial.execute("PRAGMA journal_mode = WAL")
                    trial.execute("CREATE TABLE trial(x)")
                except sqlite3.OperationalError as error:
                    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
                finally:
                    trial.close()
        except OSError:
            pass
        return True

    def _use_no_wal(self) -> None:
        """The old journal, where the file system has no shared memory. Also out of a WAL that others left."""
        self._db.close()
        self._db = self._connect("rw")  # with a lock of its own it needs no shared memory, from the beginning
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = DELETE", "locking_mode = NORMAL"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # gives the exclusive lock up

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            log.warning("%s: %s", self.path, error)
            raise error_of(error, self.path) from error
        except UnicodeDecodeError as error:  # out of SQLite's sentence on what is damaged, which quotes it
            log.warning("%s: %s", self.path, error)
            raise damaged(self.path, "what it says is no text") from error


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")
