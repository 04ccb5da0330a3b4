"""Whether a reply has begun, by what is in the database: for signals and ends in the middle of one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def reply_begun(home: Path) -> bool:
    """Whether some of a reply is stored, in the folders of a test's own."""
    database = home / "data" / "termchat" / "termchat.db"
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            query = "SELECT 1 FROM message WHERE role = 'assistant' AND text != ''"
            return db.execute(query).fetchone() is not None
    except sqlite3.OperationalError:  # there is none yet, or it is being made
        return False
