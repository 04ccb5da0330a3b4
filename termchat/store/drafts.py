"""What was typed and not sent, as a row for each window: none overwrites what was typed in another.

A window that has died, however it died, or was closed, leaves its rows behind: the next one to look takes
them over.
"""

from __future__ import annotations

from dataclasses import dataclass

from .store import Store
from .values import clean


@dataclass(frozen=True, slots=True)
class Draft:
    """key: names the row, drawn by whoever makes it."""

    key: str
    text: str


def save_draft(store: Store, key: str, conversation_id: str | None, text: str) -> None:
    """Keep a text that was typed; a blank one is forgotten. Part of the transaction it is called in.

    A conversation that is gone leaves the text without one.
    """
    with store.database.write() as db:
        if not text.strip():
            db.execute("DELETE FROM draft WHERE key = ?", (key,))
            return
        db.execute(
            "INSERT OR REPLACE INTO draft(key, conversation_id, writer, text, updated) "
            "VALUES (?, (SELECT id FROM conversation WHERE id = ?), ?, ?, ?)",
            (key, conversation_id, store.writer, clean(text), store.clock()),
        )


def leave_draft(store: Store, key: str) -> None:
    """Leave a text to whoever looks next."""
    with store.database.write() as db:
        db.execute("UPDATE draft SET writer = '' WHERE key = ?", (key,))


def take_draft(store: Store, conversation_id: str, key: str) -> str:
    """What closed windows left in a conversation, the oldest first; it is kept under this key from now on."""
    if store.notice is not None or not _left(store, conversation_id):
        return ""
    with store.database.write() as db:
        left = _left(store, conversation_id)  # another window may have been faster
        text = "\n\n".join(draft.text for draft in left)
        own = db.execute("SELECT text FROM draft WHERE key = ?", (key,)).fetchone()
        save_draft(store, key, conversation_id, "\n\n".join([text, *own] if own is not None else [text]))
        db.executemany("DELETE FROM draft WHERE key = ?", [(draft.key,) for draft in left])
    return text


def take_drafts(store: Store) -> list[Draft]:
    """What closed windows left outside of conversations, the oldest first; it belongs to this store now."""
    if store.notice is not None or not _left(store, None):
        return []
    with store.database.write() as db:
        left = _left(store, None)
        db.executemany(
            "UPDATE draft SET writer = ? WHERE key = ?", [(store.writer, draft.key) for draft in left]
        )
    return left


def _left(store: Store, conversation_id: str | None) -> list[Draft]:
    rows = store.database.query(
        "SELECT key, text, writer FROM draft WHERE conversation_id IS ? ORDER BY updated, key",
        conversation_id,
    )
    return [
        Draft(str(row["key"]), str(row["text"])) for row in rows if not store.is_alive(str(row["writer"]))
    ]
