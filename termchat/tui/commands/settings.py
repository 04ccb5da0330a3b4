"""The command for a conversation's own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...config import resolve_sampling
from ...settings import SAMPLING_KEYS, check_sampling, nearest
from ..command import Command, CommandError
from ..screens.conversation_settings import ChatSettings, ChatSettingsScreen, parse

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
    bridge = ui.bridge
    entry = bridge.model.entry if bridge.model is not None else None
    defaults = resolve_sampling(
        {},
        ui.app.config.sampling,
        entry.sampling if entry is not None else None,
        bridge.engine.info.defaults if bridge.engine is not None else None,
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


SETTINGS = (
    Command(
        "chat.settings", settings, "settings of this conversation", "Model", "set", "[NAME [VALUE]]", "f2"
    ),
)
