"""The command for a conversation's own settings."""

from __future__ import annotations

import asyncio
from typing import Any

from ...constraints import CONSTRAINTS, check, constraint_of, names
from ...errors import did_you_mean
from ...sampling import resolve_sampling
from ...settings import SAMPLING, check_sampling
from ..command import Command, CommandError
from ..conversations.conversation import Conversation
from ..screens.conversation_settings import ConversationSettings, ConversationSettingsScreen, parse
from ..ui import Ui


async def settings(ui: Ui, argument: str) -> None:
    """The conversation's settings: a form, or `NAME VALUE`, or `NAME` for the default."""
    conversation, conversations = ui.conversation, ui.app.conversations
    if argument:
        name, _, text = argument.partition(" ")
        if name not in SAMPLING:
            raise CommandError(f"there is no setting {name!r}; {did_you_mean(name, SAMPLING, '{}')}")
        sampling = {key: value for key, value in conversation.sampling.items() if key != name}
        if text.strip():
            sampling[name] = parse(name, text)
        check_sampling(sampling)
        await conversations.set_params(conversation, sampling)
        ui.notify_user(f"{name}: {text.strip() or 'the default'}")
        return
    slot = ui.slot
    entry = slot.model.entry if slot.model is not None else None
    defaults = resolve_sampling(
        {},
        ui.app.config.sampling,
        entry.sampling if entry is not None else None,
        slot.engine.info.defaults if slot.engine is not None else None,
    )
    answer = await ui.app.push_screen_wait(
        ConversationSettingsScreen(
            conversation.title,
            ConversationSettings(conversation.system, conversation.sampling),
            {name: setting.value for name, setting in defaults.items()},
        )
    )
    if answer is not None:
        await conversations.set_system(conversation, answer.system)
        await conversations.set_params(conversation, {**_constraint(conversation), **answer.sampling})


async def schema(ui: Ui, argument: str) -> None:
    """What the replies of the conversation keep to: a schema, in any of its forms; `off` for none."""
    conversation = ui.conversation
    if not argument:
        now = _constraint(conversation)
        said = "; ".join(f"{name}: {text[:200]}" for name, text in now.items())
        ui.notify_user(said or f"replies are free; /schema NAME, FIELDS, JSON or FILE ({', '.join(names())})")
        return
    free = {name: value for name, value in conversation.sampling.items() if name not in CONSTRAINTS}
    if argument == "off":
        await ui.app.conversations.set_params(conversation, free)
        ui.notify_user("replies are free")
        return
    given = await asyncio.to_thread(_checked, argument)
    if (engine := ui.slot.engine) is not None:  # now, so that the first reply need not wait for it
        from engine import EngineError, SamplingParams  # the first frame needs none of it

        try:
            await engine.prepare(SamplingParams(**given))
        except EngineError as error:
            raise CommandError(error.message) from error
    await ui.app.conversations.set_params(conversation, {**free, **given})
    ui.notify_user("replies keep to the schema; /schema off ends that")


def _checked(text: str) -> dict[str, Any]:
    given = constraint_of({"schema": text})
    check(given)
    return given


def _constraint(conversation: Conversation) -> dict[str, Any]:
    """What its replies keep to."""
    return {name: value for name, value in conversation.sampling.items() if name in CONSTRAINTS}


SETTINGS = (
    Command(
        "chat.settings",
        settings,
        "settings of this conversation",
        "Model",
        "set",
        "[NAME [VALUE]]",
        "f2",
        named=lambda ui: SAMPLING,
    ),
    Command(
        "chat.schema",
        schema,
        "replies as JSON of a schema",
        "Model",
        "schema",
        "[FORM|off]",
        named=lambda ui: names(),
    ),
)
