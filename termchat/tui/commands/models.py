"""Commands for the model: which one answers, and with which settings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual.content import Content

from ...config import resolve_sampling
from ...registry import ModelStatus
from ...settings import SAMPLING_KEYS, check_sampling, nearest
from ..format import size
from ..screens.chat_settings import ChatSettings, ChatSettingsScreen, parse
from ..screens.dialogs import Choose
from ..screens.picker import Item, Picker, matching
from .registry import Command, CommandError
from .sending import load_model

if TYPE_CHECKING:
    from ..screens.main import MainScreen


async def settings(ui: MainScreen, argument: str) -> None:
    """The conversation's settings: a form, or `NAME VALUE`, or `NAME` for the default."""
    chat, chats = ui.chat, ui.app.chats
    if argument:
        name, _, text = argument.partition(" ")
        if name not in SAMPLING_KEYS:
            raise CommandError(f"there is no setting {name!r}; did you mean {nearest(name, SAMPLING_KEYS)}?")
        sampling = {key: value for key, value in chat.sampling.items() if key != name}
        if text.strip():
            sampling[name] = parse(name, text)
        check_sampling(sampling)
        await chats.set_params(chat, sampling)
        ui.notify_user(f"{name}: {text.strip() or 'the default'}")
        return
    bridge = ui.app.bridge
    entry = bridge.model.entry if bridge.model is not None else None
    defaults = resolve_sampling(
        {},
        ui.app.config.sampling,
        entry.sampling if entry is not None else None,
        bridge.engine.info.defaults if bridge.engine is not None and bridge.state == "ready" else None,
    )
    answer = await ui.app.push_screen_wait(
        ChatSettingsScreen(
            chat.title,
            ChatSettings(chat.system, chat.sampling),
            {name: setting.value for name, setting in defaults.items()},
        )
    )
    if answer is not None:
        await chats.set_system(chat, answer.system)
        await chats.set_params(chat, answer.sampling)


async def model(ui: MainScreen, argument: str) -> None:
    """Load another model, fetching it first if it is not here."""
    bridge = ui.app.bridge
    registry = bridge.registry
    if registry is None:
        raise CommandError("the list of models is still being read")
    name: str | None = argument or None
    if name is None:
        items = [_item(status, bridge.reference) for status in registry.list_models()]

        async def search(query: str) -> list[Item]:
            found = matching(items, query)
            if not found and query:
                found = [Item(Content(f"the file or folder {query}"), query)]
            return found

        name = await ui.app.push_screen_wait(
            Picker("Models", search, selected=bridge.reference, hint="⏎ load (⇣ fetch first)   esc close")
        )
    if name is None or (name == bridge.reference and bridge.state == "ready"):
        return
    live = sum(bool(chat.live) for chat in ui.app.chats.all)
    if live:
        answer = await ui.app.push_screen_wait(
            Choose(
                f"Load {name}?",
                f"One model is loaded at a time: replies being made in {live} conversations are stopped, "
                "and what has come is kept.",
                ["stop them and load it", "cancel"],
            )
        )
        if answer != 0:
            return
    load_model(ui, name)
    if bridge.registry is not None and name in bridge.registry.entries:
        await fetch_if_absent(ui)


async def fetch_if_absent(ui: MainScreen) -> None:
    """Fetch a model that was asked for by name, once it turns out not to be here."""
    bridge = ui.app.bridge
    while bridge.state in ("starting", "loading") and bridge.model is None:
        await asyncio.sleep(0.02)
    if bridge.state == "absent":
        bridge.download()


def _item(status: ModelStatus, loaded: str) -> Item:
    entry = status.entry
    here = "●" if entry.name == loaded else "✓" if status.path is not None else "⇣"
    facts = [size(entry.size) if entry.size else "", entry.licence]
    if status.partial:
        facts.append(f"{size(status.partial)} fetched")
    text = Content.assemble(
        (f"{here} ", "$accent"),
        (f"{entry.name:<18}", "bold"),
        ("  ".join(fact for fact in facts if fact), "$chat-muted"),
    )
    return Item(text, entry.name, Content.styled(f"  {entry.description}", "$chat-muted"))


MODELS = (
    Command(
        "chat.settings", settings, "settings of this conversation", "Model", "set", "[NAME [VALUE]]", "f2"
    ),
    Command("model.choose", model, "load another model", "Model", "model", "[NAME]", "ctrl+l"),
)
