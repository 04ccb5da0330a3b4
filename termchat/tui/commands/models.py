"""Commands for models: which one answers in a conversation, and which are loaded."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from textual.content import Content

from ...registry import ModelStatus
from ...units import size
from ..command import Command, CommandError
from ..engines.model_slot import EngineBridge
from ..screens.dialogs import Choose
from ..screens.picker import Item, Picker, matching
from .loading import load, replies, unload, using

if TYPE_CHECKING:
    from ..screens.main import MainScreen


async def choose(ui: MainScreen, argument: str) -> None:
    """Go on with another model in this conversation and in new ones, fetching it first if it is not here."""
    engines, chat = ui.app.engines, ui.chat
    name = argument or await _picked(ui)
    if not name:
        return
    bridge = engines.of(ui.app.loader.reference(name))
    if bridge.state in ("absent", "failed"):
        bridge.look()  # it may have come meanwhile
    if bridge.state == "absent":
        bridge.download()
    elif not await load(ui, bridge, []):
        return
    engines.default = bridge
    await ui.app.chats.set_model(chat, bridge.reference)


async def _picked(ui: MainScreen) -> str | None:
    """The model chosen from a list; None: another thing was done, or nothing."""
    registry, engines = ui.app.loader.registry, ui.app.engines
    if registry is None:
        raise CommandError("the list of models is still being read")
    loaded = {bridge.reference for bridge in engines.loaded}
    files = [
        _file_item(bridge, loaded)
        for bridge in engines.known
        if bridge.model is not None and bridge.model.entry is None
    ]
    items = [*files, *(_item(status, loaded) for status in registry.list_models())]
    items += [_unload_item(bridge) for bridge in engines.loaded]

    async def search(query: str) -> list[Item]:
        found = matching(items, query)
        if not found and query:
            found = [Item(Content(f"the file or folder {query}"), query)]
        return found

    hint = "enter use   ● loaded   ✓ on this machine   ⇣ fetch first   esc close"
    picked: str | EngineBridge | None = await ui.app.push_screen_wait(
        Picker("Models", search, selected=ui.bridge.reference, hint=hint)
    )
    if isinstance(picked, EngineBridge):
        await _free(ui, picked)
        return None
    return picked


async def free(ui: MainScreen, argument: str) -> None:
    """Take a model out of the memory; it is loaded again when it is needed."""
    engines = ui.app.engines
    bridge = engines.of(ui.app.loader.reference(argument)) if argument else ui.bridge
    if bridge.engine is None:
        names = " and ".join(other.title for other in engines.loaded) or "none"
        raise CommandError(f"{bridge.title} is not loaded; loaded: {names}")
    await _free(ui, bridge)


async def why(ui: MainScreen, argument: str) -> None:
    """Say all that is known of why the model cannot be fetched or used."""
    bridge = ui.bridge
    if not bridge.details:
        raise CommandError(f"there is nothing to say against {bridge.title}")
    await ui.app.push_screen_wait(Choose(f"What is wrong with {bridge.title}", bridge.details, ["close"]))


async def _free(ui: MainScreen, bridge: EngineBridge) -> None:
    busy = len(using(ui, bridge))
    if busy:
        answer = await ui.app.push_screen_wait(
            Choose(f"Unload {bridge.title}?", f"It is making {replies(busy)}.", ["stop and unload", "cancel"])
        )
        if answer != 0:
            return
    await unload(ui, bridge)
    ui.notify_user(f"{bridge.title} is unloaded; the next message loads it again")


def _unload_item(bridge: EngineBridge) -> Item:
    text = Content.assemble(("✗ ", "$accent"), ("unload ", "$chat-muted"), (bridge.title, "bold"))
    return Item(
        text, bridge, Content.styled("  out of the memory; the next message loads it again", "$chat-muted")
    )


def _file_item(bridge: EngineBridge, loaded: Set[str]) -> Item:
    assert bridge.model is not None, "it is a file that was found"
    here = "●" if bridge.reference in loaded else "✓"
    text = Content.assemble(
        (f"{here} ", "$accent"), (f"{bridge.title:<18}  ", "bold"), ("a file of yours", "$chat-muted")
    )
    return Item(text, bridge.reference, Content.styled(f"  {bridge.model.path}", "$chat-muted"))


def _item(status: ModelStatus, loaded: Set[str]) -> Item:
    entry = status.entry
    here = "●" if entry.name in loaded else "✓" if status.path is not None else "⇣"
    facts = [size(entry.size) if entry.size else "", entry.licence]
    if status.partial:
        facts.append(f"{size(status.partial)} fetched")
    text = Content.assemble(
        (f"{here} ", "$accent"),
        (f"{entry.name:<18}  ", "bold"),
        ("  ".join(fact for fact in facts if fact), "$chat-muted"),
    )
    return Item(text, entry.name, Content.styled(f"  {entry.description}", "$chat-muted"))


MODELS = (
    Command("model.choose", choose, "use another model", "Model", "model", "[NAME]", "ctrl+l"),
    Command("model.unload", free, "take a model out of the memory", "Model", "unload", "[NAME]"),
    Command("model.why", why, "why the model cannot be fetched or used", "Model", "why"),
)
