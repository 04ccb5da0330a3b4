"""Before a turn: the conversation's model is loaded, downloaded, or replaced, by what the user answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..conversations.conversation import Conversation
from ..engines.model_slot import ModelSlot
from ..screens.dialogs import Choose
from ..ui import Ui
from .stopping import stop_one

Answer = tuple[str, Callable[[], Awaitable[bool]]]
"""What the user can choose, and what follows; whether the model will answer then."""


async def model_answers(ui: Ui, conversation: Conversation) -> bool:
    """Whether the conversation's model will answer. If it is not loaded and cannot be, the user is asked."""
    slot = ui.app.engines.of(conversation.model)
    if slot.state in ("absent", "failed"):
        slot.look()  # it may have come meanwhile
    gone = slot.state == "failed" and slot.model is None and conversation.messages
    if (slot.state == "absent" and conversation.messages) or gone:
        entry = slot.entry
        download: list[Answer] = [("download it", lambda: _download(slot))] if entry is not None else []
        return await _ask(
            ui,
            f"{slot.title} is not on this machine",
            ", ".join(entry.facts if entry is not None else ()) or slot.error,
            [*download, *_others(ui, conversation, slot)],
        )
    return await load(ui, slot, _others(ui, conversation, slot))


async def load(ui: Ui, slot: ModelSlot, others: list[Answer]) -> bool:
    """Load a model if it is not; without room for it the user is asked. others: more answers."""
    if slot.state not in ("unloaded", "failed"):
        return True
    lack = await ui.app.engines.shortage(slot)
    if lack is None:
        slot.load()
        return True
    answers = [answer for other in lack.loaded for answer in _instead(ui, slot, other)]
    title = f"Not enough memory for {slot.title} as well"
    return await _ask(ui, title, lack.sentence(slot.title) + ".", [*answers, *others])


def using(ui: Ui, slot: ModelSlot) -> list[Conversation]:
    """The conversations in which a model answers now."""
    return [
        each
        for each in ui.app.conversations.all
        if any(reply.slot is slot for reply in each.live.values())
        or (each.sending and not each.live and ui.app.engines.of(each.model) is slot)
    ]


async def unload(ui: Ui, slot: ModelSlot) -> None:
    """Stop what a model answers, keeping what has come, and free its memory."""
    for conversation in using(ui, slot):
        stop_one(ui, conversation)
    await slot.unload()


def replies(count: int) -> str:
    """A number of replies in words."""
    return f"{count} repl{'y' if count == 1 else 'ies'}"


def _instead(ui: Ui, slot: ModelSlot, other: ModelSlot) -> list[Answer]:
    """Ways to get another model out of the memory."""

    async def now() -> bool:
        await unload(ui, other)
        if ui.app.engines.default is other:
            ui.app.engines.default = slot
        return await load(ui, slot, [])

    async def later() -> bool:
        ui.app.engines.load_instead(slot, other)
        return True

    busy = len(using(ui, other))
    if not busy:
        return [(f"unload {other.title}, which is idle", now)]
    return [
        (f"wait until {other.title} is idle, then unload it", later),
        (f"stop {replies(busy)} and unload {other.title}", now),
    ]


def _others(ui: Ui, conversation: Conversation, slot: ModelSlot) -> list[Answer]:
    """Going on with a model that is loaded."""

    def with_other(other: ModelSlot) -> Callable[[], Awaitable[bool]]:
        async def go_on() -> bool:
            await ui.app.conversations.set_model(conversation, other.reference)
            return True

        return go_on

    return [
        (f"go on with {other.title}", with_other(other))
        for other in ui.app.engines.loaded
        if other is not slot
    ]


async def _download(slot: ModelSlot) -> bool:
    slot.download()
    return True


async def _ask(ui: Ui, title: str, text: str, answers: list[Answer]) -> bool:
    chosen = await ui.app.push_screen_wait(Choose(title, text, [*(label for label, _ in answers), "cancel"]))
    return chosen is not None and chosen < len(answers) and await answers[chosen][1]()
