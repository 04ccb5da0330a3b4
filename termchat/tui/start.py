"""How the interface begins, after its first frame: what there was before, then the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from ..slash import as_typed
from .conversations.conversation import Conversation
from .ui import Ui


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for. sampling, engine: only what was given. download: an absent model."""

    model: str | None = None
    download: bool = False
    system: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    save: bool = True
    newest: bool = False
    conversation: str | None = None


async def start(ui: Ui, options: Options, warnings: Iterable[str]) -> None:
    """Look at what was typed before, open the store, load the engine."""
    app = ui.app
    for warning in warnings:
        ui.notify_user(warning)
    conversation: Conversation | None = None
    try:
        await app.store.open()
        if app.store.notice is not None:
            ui.notify_user(app.store.notice, error=True)
        conversation = await _conversation(ui, options)
    except (UserError, OSError) as error:
        ui.notify_user(str(error), error=True)
    if conversation is not None:
        await ui.switch_to(conversation)
    else:
        ui.conversation_changed(ui.conversation)
    first = conversation.model if conversation is not None and options.model is None else ""
    await app.engines.start(options.model, download=options.download, first=first)
    if conversation is not None and options.model is not None and app.engines.default.reference:
        await app.conversations.set_model(conversation, app.engines.default.reference)


async def _conversation(ui: Ui, options: Options) -> Conversation | None:
    """Read the list and the prompts before; the conversation that was asked for. UserError."""
    conversations = ui.app.conversations
    await conversations.load()
    await _take_draft(ui)
    earlier = await ui.app.store.call(lambda store: store.prompts())
    ui.prompt.earlier = [as_typed(text) for text in earlier[::-1]]
    conversation = None
    if options.newest:
        conversation = next((each for each in conversations.all if each.id is not None), None)
    if options.conversation is not None:
        name = options.conversation
        conversation = conversations.find(name)
        if conversation is None:
            conversation = await conversations.add(lambda store: store.get_or_create(name))
    if conversation is not None:  # as a one-shot goes on: settings hold for this run, the system prompt stays
        conversation.given = options.sampling
        if options.system:
            await conversations.set_system(conversation, options.system)
    return conversation


async def _take_draft(ui: Ui) -> None:
    """Show a text that was typed in no conversation, if nothing is typed yet."""
    typed = next((each for each in ui.app.conversations.all if each.id is None and each.draft), None)
    shown = ui.conversation
    if typed is not None and typed is not shown and shown.id is None and not ui.prompt.text:
        await ui.switch_to(typed)
