"""What there is of a reply in the database: for signals and ends in the middle of one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple


class Saved(NamedTuple):
    """The newest reply, as far as it is stored; empty while there is none."""

    text: str = ""
    status: str = ""


def saved(home: Path) -> Saved:
    """What is stored in the folders of a test's own, which only looks: opening a store would write."""
    database = home / "data" / "termchat" / "termchat.db"
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            query = "SELECT text, status FROM message WHERE role = 'assistant' ORDER BY id DESC"
            return Saved(*(db.execute(query).fetchone() or ()))
    except sqlite3.OperationalError:  # there is none yet, or it is being made
        return Saved()
