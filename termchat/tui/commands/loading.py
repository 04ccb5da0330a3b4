"""Before a turn: the conversation's model is loaded, fetched, or replaced, by what the user answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...units import size
from ..conversations.conversation import Chat
from ..engines.model_slot import EngineBridge
from ..screens.dialogs import Choose
from .stopping import stop_one

if TYPE_CHECKING:
    from ..screens.main import MainScreen

Answer = tuple[str, Callable[[], Awaitable[bool]]]
"""What the user can choose, and what follows; whether the model will answer then."""


async def model_answers(ui: MainScreen, chat: Chat) -> bool:
    """Whether the conversation's model will answer. If it is not loaded and cannot be, the user is asked."""
    bridge = ui.app.engines.of(chat.model)
    if bridge.state in ("absent", "failed"):
        bridge.look()  # it may have come meanwhile
    gone = bridge.state == "failed" and bridge.model is None and chat.messages
    if (bridge.state == "absent" and chat.messages) or gone:
        entry = bridge.entry
        facts = [size(entry.size) if entry.size else "", entry.licence] if entry is not None else []
        fetch: list[Answer] = [("download it", lambda: _download(bridge))] if entry is not None else []
        return await _ask(
            ui,
            f"{bridge.title} is not on this machine",
            ", ".join(fact for fact in facts if fact) or bridge.error,
            [*fetch, *_others(ui, chat, bridge)],
        )
    return await load(ui, bridge, _others(ui, chat, bridge))


async def load(ui: MainScreen, bridge: EngineBridge, others: list[Answer]) -> bool:
    """Load a model if it is not; without room for it the user is asked. others: more answers."""
    if bridge.state not in ("unloaded", "failed"):
        return True
    lack = await ui.app.engines.shortage(bridge)
    if lack is None:
        bridge.load()
        return True
    answers = [answer for other in lack.loaded for answer in _instead(ui, bridge, other)]
    title = f"Not enough memory for {bridge.title} as well"
    return await _ask(ui, title, lack.sentence(bridge.title) + ".", [*answers, *others])


def using(ui: MainScreen, bridge: EngineBridge) -> list[Chat]:
    """The conversations in which a model answers now."""
    return [
        chat
        for chat in ui.app.chats.all
        if any(reply.bridge is bridge for reply in chat.live.values())
        or (chat.sending and not chat.live and ui.app.engines.of(chat.model) is bridge)
    ]


async def unload(ui: MainScreen, bridge: EngineBridge) -> None:
    """Stop what a model answers, keeping what has come, and free its memory."""
    for chat in using(ui, bridge):
        stop_one(ui, chat)
    await bridge.unload()


def replies(count: int) -> str:
    """A number of replies in words."""
    return f"{count} repl{'y' if count == 1 else 'ies'}"


def _instead(ui: MainScreen, bridge: EngineBridge, other: EngineBridge) -> list[Answer]:
    """Ways to get another model out of the memory."""

    async def now() -> bool:
        await unload(ui, other)
        if ui.app.engines.default is other:
            ui.app.engines.default = bridge
        return await load(ui, bridge, [])

    async def later() -> bool:
        ui.app.engines.load_instead(bridge, other)
        return True

    busy = len(using(ui, other))
    if not busy:
        return [(f"unload {other.title}, which is idle", now)]
    return [
        (f"wait until {other.title} is idle, then unload it", later),
        (f"stop {replies(busy)} and unload {other.title}", now),
    ]


def _others(ui: MainScreen, chat: Chat, bridge: EngineBridge) -> list[Answer]:
    """Going on with a model that is loaded."""

    def with_other(other: EngineBridge) -> Callable[[], Awaitable[bool]]:
        async def go_on() -> bool:
            await ui.app.chats.set_model(chat, other.reference)
            return True

        return go_on

    return [
        (f"go on with {other.title}", with_other(other))
        for other in ui.app.engines.loaded
        if other is not bridge
    ]


async def _download(bridge: EngineBridge) -> bool:
    bridge.download()
    return True


async def _ask(ui: MainScreen, title: str, text: str, answers: list[Answer]) -> bool:
    chosen = await ui.app.push_screen_wait(Choose(title, text, [*(label for label, _ in answers), "cancel"]))
    return chosen is not None and chosen < len(answers) and await answers[chosen][1]()
