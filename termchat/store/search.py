"""Full-text search: every word must occur, in any script and as any part of a word.

A word is looked for with its accents in the letters and behind them, as both are stored.
Words of three characters and more are looked up in the trigram index. The index knows nothing shorter,
which would leave out most Chinese, Japanese and Korean words: those are searched for by reading the texts.
(SQLite reads a text for both only up to a NUL character.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..messages import Role
from ..sanitize import without_controls
from ..words import spellings
from .conversations import ConversationTable
from .values import clean

_BEFORE, _LENGTH = 40, 160
_INDEXED = 3


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found. matches: (start, end) of the words within `snippet`, which is one line."""

    conversation_id: str
    title: str
    message_id: int
    role: Role
    created: float
    snippet: str
    matches: tuple[tuple[int, int], ...]


def search(store: ConversationTable, query: str, limit: int = 50) -> list[Hit]:
    """Messages that hold all words of the query, the newest first; nothing for an empty query.

    Nothing in the query is an operator: quotes, stars and dashes are searched for as they are.
    """
    words = clean(query).replace("\0", " ").split()
    if not words:
        return []
    conditions, values = [], []
    forms = {word: spellings(word) for word in words}
    long = [word for word in words if len(forms[word][0]) >= _INDEXED]
    if long:
        conditions.append("message.id IN (SELECT rowid FROM message_fts WHERE message_fts MATCH ?)")
        values.append(" AND ".join(f"({' OR '.join(map(_quoted, forms[word]))})" for word in long))
    for word in words:
        if word not in long:
            cases = {  # LIKE itself folds ASCII only
                case for form in forms[word] for case in (form, form.lower(), form.upper(), form.title())
            }
            conditions.append("(" + " OR ".join(["message.text LIKE ? ESCAPE '!'"] * len(cases)) + ")")
            values.extend("%" + re.sub(r"([!%_])", r"!\1", case) + "%" for case in cases)
    rows = store.database.query(
        "SELECT message.id, conversation_id, title, role, message.created, text "
        "FROM message JOIN conversation ON conversation.id = conversation_id "
        f"WHERE deleted IS NULL AND {' AND '.join(conditions)} ORDER BY message.id DESC LIMIT ?",
        *values,
        limit,
    )
    hits = []
    for row in rows:
        snippet, matches = _snippet(str(row["text"]), [form for word in words for form in forms[word]])
        hits.append(
            Hit(
                row["conversation_id"], row["title"], row["id"], row["role"], row["created"], snippet, matches
            )
        )
    return hits


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _snippet(text: str, words: list[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A line of the text around the first word found, and where words are in it."""
    pattern = re.compile(
        "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE
    )
    first = pattern.search(text)
    start = max(0, first.start() - _BEFORE) if first is not None else 0
    end = start + _LENGTH
    line = ("…" if start else "") + without_controls(text[start:end]) + ("…" if end < len(text) else "")
    return line, tuple(match.span() for match in pattern.finditer(line))
