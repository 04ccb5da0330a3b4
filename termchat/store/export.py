"""Conversations as files: JSON with the whole tree, to be read back; Markdown and text of the branch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from ..files import write_private
from ..messages import ROLES, STATUSES, StoredConversation, StoredMessage
from ..units import date
from .errors import StoreError
from .store import Store
from .values import clean, load_json

Format = Literal["md", "json", "text"]

LARGEST_IMPORT = 1 << 28
"""Bytes; what is read of them takes several times as much memory."""

_VERSION = 1


def export(store: Store, ids: Iterable[str], form: Format) -> str:
    """The conversations as one document that ends with a newline. NotFoundError."""
    whole = form == "json"
    return document_of(
        [
            (store.conversation(id), store.tree(id) if whole else store.path(store.conversation(id).id))
            for id in ids
        ],
        form,
    )


def document_of(
    conversations: Iterable[tuple[StoredConversation, Sequence[StoredMessage]]], form: Format
) -> str:
    """Conversations with their messages as one document: for JSON all of them, else the branch shown."""
    if form == "json":
        content = [conversation_as_dict(*each) for each in conversations]
        document = {"termchat_export": _VERSION, "conversations": content}
        return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    write = _markdown if form == "md" else _text
    return "\n".join(write(*each) for each in conversations)


def export_file(path: Path, document: str) -> None:
    """Write an exported document, readable for its owner only. StoreError."""
    try:
        write_private(path, clean(document))
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def parse_export(document: str) -> Mapping[str, Any]:
    """The content of an exported JSON document. StoreError: it is none."""
    if not document.strip():
        raise StoreError("it is empty")
    try:
        content = load_json(document)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"this is no JSON document: {error}") from error
    if not isinstance(content, dict) or content.get("termchat_export") != _VERSION:
        raise StoreError(f"this is no export of termchat (version {_VERSION})")
    return content


def import_parsed(store: Store, content: Mapping[str, Any]) -> list[StoredConversation]:
    """Add the conversations of such a content, all or none; one whose id is taken gets a new one.

    StoreError: says what is wrong where.
    """
    added = []
    with store.database.write():
        for index, item in enumerate(_list(content, "conversations", "the export")):
            where = f"conversations[{index}]"
            if not isinstance(item, dict):
                raise StoreError(f"{where} must be an object")
            try:
                added.append(_import(store, item, where))
            except OverflowError as error:
                raise StoreError(f"{where} holds a number that is too large") from error
    return added


def conversation_as_dict(
    conversation: StoredConversation, messages: Iterable[StoredMessage]
) -> dict[str, Any]:
    """A conversation and its messages as JSON values."""
    names = ("id", "title", "model", "system", "params", "leaf_id", "forked_from", "created", "updated")
    content = {name: getattr(conversation, name) for name in names}
    content["messages"] = [asdict(message) for message in messages]
    for message in content["messages"]:
        del message["conversation_id"]
    return content


def _import(store: Store, item: Mapping[str, Any], where: str) -> StoredConversation:
    name = _str(item, "id", where)
    taken = store.database.query("SELECT 1 FROM conversation WHERE id = ?", clean(name))
    new = store.create_conversation(
        None if taken else name,
        title=_str(item, "title", where),
        model=_str(item, "model", where),
        system=_str(item, "system", where),
        params=_dict(item, "params", where),
        forked_from=_str(item, "forked_from", where) or None,
    )
    ids: dict[int, int] = {}  # of the document -> of this database
    for index, content in enumerate(_list(item, "messages", where)):
        at = f"{where}.messages[{index}]"
        message = _message(content, at, store.clock())
        if message.id in ids:
            raise StoreError(f"{at}.id must be a number of its own")
        if message.parent_id is not None and message.parent_id not in ids:
            raise StoreError(f"{at}.parent_id must be the id of an earlier message or null")
        parent = ids[message.parent_id] if message.parent_id is not None else None
        ids[message.id] = store.add_copy(new.id, message, parent)
    times = [_seconds(item, key, where, store.clock()) for key in ("created", "updated")]
    leaf = _integer(item, "leaf_id", where)
    with store.database.write() as db:
        db.execute(
            "UPDATE conversation SET leaf_id = coalesce(?, leaf_id), created = ?, updated = ? WHERE id = ?",
            (ids.get(leaf) if leaf is not None else None, *times, new.id),
        )
    return store.conversation(new.id)


def _message(content: object, where: str, now: float) -> StoredMessage:
    """A message of a document, with the document's ids."""
    if not isinstance(content, dict):
        raise StoreError(f"{where} must be an object")
    own = _integer(content, "id", where)
    if own is None:
        raise StoreError(f"{where}.id must be a number of its own")
    role, status = _str(content, "role", where), _str(content, "status", where) or "done"
    if role not in ROLES or status not in STATUSES:
        raise StoreError(f"{where} has a role or status that termchat does not know")
    return StoredMessage(
        id=own,
        conversation_id="",
        parent_id=_integer(content, "parent_id", where),
        role=role,
        status=status,
        text=_str(content, "text", where),
        thinking=_str(content, "thinking", where),
        model=_str(content, "model", where),
        finish_reason=_str(content, "finish_reason", where) or None,
        metrics=_dict(content, "metrics", where),
        created=_seconds(content, "created", where, now),
    )


def _integer(item: Mapping[str, Any], key: str, where: str) -> int | None:
    value = item.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise StoreError(f"{where}.{key} must be a number or null")
    return value


def _str(item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if value is not None and not isinstance(value, str):
        raise StoreError(f"{where}.{key} must be a text")
    return value or ""


def _dict(item: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = item.get(key, {})
    if not isinstance(value, dict):
        raise StoreError(f"{where}.{key} must be an object")
    return value


def _list(item: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = item.get(key)
    if not isinstance(value, list):
        raise StoreError(f"{key} of {where} must be a list")
    return value


def _seconds(item: Mapping[str, Any], key: str, where: str, default: float) -> float:
    value = item.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise StoreError(f"{where}.{key} must be a number of seconds")
    return float(value)


def _markdown(conversation: StoredConversation, branch: Sequence[StoredMessage]) -> str:
    lines = [f"# {conversation.title or conversation.id}", "", date(conversation.created), ""]
    if conversation.system:
        lines += ["## System", "", _closed(conversation.system), ""]
    for message in branch:
        lines += [f"## {_heading(message)}", ""]
        if message.thinking:
            lines += [f"> {line}".rstrip() for line in message.thinking.strip().splitlines()] + [""]
        lines += [_closed(message.text.rstrip("\n")), ""]
    return "\n".join(lines)


def _closed(text: str) -> str:
    """The text with a last line that ends a code block left open, which would hold what follows, too."""
    from ..render.blocks import BlockParser  # draws as well, so it needs more than a store does

    parser = BlockParser(strict=True)
    for line in text.splitlines():
        parser.feed(line)
    return f"{text}\n{parser.open_fence}" if parser.open_fence else text


def _text(conversation: StoredConversation, branch: Sequence[StoredMessage]) -> str:
    lines = [conversation.title or conversation.id, date(conversation.created), ""]
    if conversation.system:
        lines += ["[System]", conversation.system, ""]
    for message in branch:
        lines += [f"[{_heading(message)}]", message.text.rstrip("\n"), ""]
    return "\n".join(lines)


def _heading(message: StoredMessage) -> str:
    who = {"user": "You", "assistant": message.model or "Assistant", "system": "System", "tool": "Tool"}
    unfinished = f" ({message.status})" if message.status != "done" else ""
    return who[message.role] + unfinished
