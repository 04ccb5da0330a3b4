"""Rows of the database as plain values; how texts become storable."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..messages import ROLES, STATUSES, StoredConversation, StoredMessage, ending_of
from ..sanitize import is_blank, without_controls
from .errors import StoreDamagedError

Made = TypeVar("Made")

TITLE_LENGTH = 60


def _whole(make: Callable[[sqlite3.Row], Made]) -> Callable[[sqlite3.Row], Made]:
    """The same, but a row whose table has lost a column, since its description is damaged, is an error of the
    store's.
    """

    @wraps(make)
    def of(row: sqlite3.Row) -> Made:
        try:
            return make(row)
        except IndexError:
            raise StoreDamagedError("the database is damaged: a table of it has lost a column") from None

    return of


@_whole
def conversation_of(row: sqlite3.Row) -> StoredConversation:
    """A row of conversation with its count, whatever a damaged database put there."""
    return StoredConversation(
        id=_text(row["id"]),
        title=_text(row["title"]),
        title_auto=bool(row["title_auto"]),
        model=_text(row["model"]),
        system=_text(row["system"]),
        params=_mapping(row["params"]),
        leaf_id=_integer(row["last"]),
        forked_from=_text(row["forked_from"]) or None,
        created=_seconds(row["created"]),
        updated=_seconds(row["updated"]),
        messages=int(row["messages"]),
        unread="unread" in row.keys() and bool(row["unread"]),  # noqa: SIM118 (a row is no mapping)
        ending=ending_of(*_text(row["leaf"] or " ").split(" ", 1)),
    )


@_whole
def message_of(row: sqlite3.Row) -> StoredMessage:
    """A row of message, whatever a damaged database put there."""
    role, status = row["role"], row["status"]
    return StoredMessage(
        id=int(row["id"]),
        conversation_id=_text(row["conversation_id"]),
        parent_id=_integer(row["parent_id"]),
        role=role if role in ROLES else "user",
        status=status if status in STATUSES else "error",
        text=_text(row["text"]),
        thinking=_text(row["thinking"]),
        model=_text(row["model"]),
        finish_reason=_text(row["finish_reason"]) or None,
        metrics=_mapping(row["metrics"]),
        created=_seconds(row["created"]),
    )


def clean(text: str) -> str:
    """The text with anything that is not valid Unicode (lone surrogates) replaced by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def title_of(text: str) -> str:
    """A title from a first message: its first line with words, cleaned of controls, at most 60 long."""
    lines = (" ".join(without_controls(line).split()) for line in text[:10_000].splitlines())
    line = next((line for line in lines if not is_blank(line)), "")
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[: TITLE_LENGTH - 1]
    word = cut.rfind(" ")
    return (cut[:word] if word > TITLE_LENGTH // 2 else cut).rstrip() + "…"


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _mapping(value: object) -> dict[str, Any]:
    try:
        found = load_json(_text(value))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def load_json(text: str) -> Any:
    """The value of a JSON text; what is no finite number (NaN, 1e999) becomes None.

    ValueError, RecursionError.
    """

    def number(literal: str) -> float | None:
        value = float(literal)
        return value if math.isfinite(value) else None

    return json.loads(text, parse_float=number, parse_constant=number)
