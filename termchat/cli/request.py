"""What was asked for at the prompt, and the conversation that it goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..constraints import over
from ..errors import UserError
from ..messages import StoredConversation
from ..registry import Registry
from ..registry_errors import RegistryError
from .console import Console
from .recording import Recording

BUSY_SECONDS = 5.0
"""How long a reply waits for a database that another program has locked; then it is not saved."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for. sampling and engine hold only what was given as options."""

    text: str
    model: str | None = None
    yes: bool = False
    system: str | None = None
    raw: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    form: Literal["plain", "json", "jsonl"] = "plain"
    stream: bool = True
    stats: bool = False
    save: bool = True
    newest: bool = False
    conversation: str | None = None

    def sampling_over(self, past: StoredConversation | None) -> dict[str, Any]:
        """What was given, over the conversation's own settings."""
        return over(past.sampling if past is not None else {}, self.sampling)


def open_recording(
    console: Console, database: Path, request: Request
) -> tuple[Recording, StoredConversation | None]:
    """Where the conversation is saved; the one that goes on, as it is now.

    UserError: a conversation was to go on, and it cannot be read; its id is none.
    """
    note = console.messages.note
    if not request.save:
        return Recording(None, note), None
    from ..store import NotFoundError, Store, checked_id

    name = checked_id(request.conversation) if request.conversation is not None else None
    try:
        store = Store(database, busy_timeout=BUSY_SECONDS)
    except UserError as error:
        if request.newest or name is not None:
            raise
        note(f"the conversation is not saved: {error}")
        return Recording(None, note), None
    conversation = None
    if request.newest:
        conversation = store.newest()
        if conversation is None:
            note("there is no conversation to continue; this one is new")
    elif name is not None:
        with suppress(NotFoundError):
            conversation = store.conversation(name)
    messages = store.path(conversation.id) if conversation is not None else ()
    return Recording(store, note, conversation, messages, name=name), conversation


def model_of(
    console: Console, registry: Registry, request: Request, past: StoredConversation | None
) -> str | None:
    """The model that was asked for, else the one the conversation was held with, if it is still there."""
    if request.model is not None or past is None or not past.model:
        return request.model
    try:
        registry.resolve(past.model)
    except RegistryError as error:
        console.messages.note(f"{error}; the conversation goes on with the default model")
        return None
    return past.model
