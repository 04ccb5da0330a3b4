"""Conversations and their messages as plain values, and as a prompt; how a reply ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from .constraints import CONSTRAINTS
from .settings import SAMPLING

if TYPE_CHECKING:
    from engine import Finished, Message

Role = Literal["system", "user", "assistant", "tool"]
Status = Literal["streaming", "done", "interrupted", "error"]
Ending = Literal["", "unanswered", "interrupted", "error", "streaming"]

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")
STATUSES: tuple[Status, ...] = ("streaming", "done", "interrupted", "error")


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation. leaf_id: last message of the branch shown; created, updated: seconds since 1970.

    params: its own sampling settings; forked_from: the conversation it was copied from; messages: how many it
    has on all branches; unread: a reply was not seen yet; ending: what the branch shown lacks.
    """

    id: str
    title: str
    title_auto: bool
    model: str
    system: str
    params: Mapping[str, Any]
    leaf_id: int | None
    forked_from: str | None
    created: float
    updated: float
    messages: int
    unread: bool = False
    ending: Ending = ""

    @property
    def sampling(self) -> dict[str, Any]:
        """Those of its own settings that this version knows."""
        return {key: value for key, value in self.params.items() if key in SAMPLING or key in CONSTRAINTS}


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message of the tree. metrics: usage and timings of a reply, as JSON values."""

    id: int
    conversation_id: str
    parent_id: int | None
    role: Role
    status: Status
    text: str
    thinking: str
    model: str
    finish_reason: str | None
    metrics: Mapping[str, Any]
    created: float


class Outcome(NamedTuple):
    """How a reply ended, as the store keeps it: for `ReplyWriter.finish`."""

    status: Literal["done", "interrupted", "error"]
    reason: str
    metrics: Mapping[str, Any]


def ending_of(role: str, status: str) -> Ending:
    """What a branch lacks that ends in a message of this role and status: nothing, or its (whole) answer."""
    if role == "user":
        return "unanswered"
    return cast(Ending, status) if status in ("interrupted", "error", "streaming") else ""


def branch_of(messages: Iterable[StoredMessage], leaf_id: int | None) -> list[StoredMessage]:
    """Those of the messages that lead from a root to a leaf, the root first."""
    known = {message.id: message for message in messages}
    branch: list[StoredMessage] = []
    while leaf_id in known:  # each message once, so that a damaged database cannot lead in a circle
        branch.append(message := known.pop(leaf_id))
        leaf_id = message.parent_id
    return branch[::-1]


def newest_leaf(messages: Iterable[StoredMessage], message_id: int | None) -> int | None:
    """Down from a message (None: from above the roots) to a leaf, taking the newest child each time."""
    newest = {each.parent_id: each.id for each in sorted(messages, key=lambda each: each.id)}
    while message_id in newest:
        message_id = newest.pop(message_id)
    return message_id


def prompt_of(messages: Iterable[StoredMessage], system: str = "") -> list[Message]:
    """The messages as the engine gets them: system first, then user and assistant in turn.

    A message whose answer was stopped before it began is followed by another of the same side; such are
    joined by a blank line, since the templates of many models refuse roles that do not alternate.
    """
    from engine import Message  # the full-screen chat draws its first frame without the engine

    turns: list[tuple[Role, str]] = [("system", system)] if system else []
    for message in messages:
        if message.role == "assistant" and not message.text:
            continue
        if turns and turns[-1][0] == message.role:
            turns[-1] = (message.role, f"{turns[-1][1]}\n\n{message.text}")
        else:
            turns.append((message.role, message.text))
    return [Message(role, text) for role, text in turns]


def said_now(text: str, role: Role = "user") -> StoredMessage:
    """A message as it will be stored."""
    return StoredMessage(0, "", None, role, "done", text, "", "", None, {}, 0.0)


def outcome_of(finished: Finished | None, *, empty: bool) -> Outcome:
    """What to store of a reply. finished: None if the program itself failed. empty: it has not a word.

    A reply that failed before its first word is none: as an interrupted one it goes.
    """
    from engine import as_dict  # as above

    if finished is None:
        return Outcome("interrupted" if empty else "error", "error", {})
    metrics = {**as_dict(finished.usage), **as_dict(finished.timings), "seed": finished.seed}
    if finished.reason == "error" and not empty:
        return Outcome("error", finished.reason, metrics)
    stopped = finished.reason in ("error", "aborted")
    return Outcome("interrupted" if stopped else "done", finished.reason, metrics)
