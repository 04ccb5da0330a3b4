"""What Enter does: a command is carried out, anything else is sent, with the files it mentions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UserError
from .. import attach
from ..background import in_background
from ..chat import Chat
from ..screens.dialogs import Choose
from .registry import find, is_command

if TYPE_CHECKING:
    from ..screens.main import MainScreen


def submit(ui: MainScreen, text: str) -> None:
    """Send what was typed, or carry it out."""
    if ui.app.bridge.state == "absent" and not is_command(text):
        ui.app.bridge.download()
    if not text.strip():
        return
    if is_command(text):
        _carry_out(ui, text)
        return
    ui.prompt.load("")
    ui.run_worker(_send(ui, ui.chat, text.removeprefix("/") if text.startswith("//") else text))


def _carry_out(ui: MainScreen, text: str) -> None:
    from . import COMMANDS

    try:
        command, argument = find(COMMANDS, text)
    except UserError as error:
        ui.notify_user(f"{error}; {ui.app.keys.hint('help')} lists them all", error=True)
        return
    ui.prompt.load("")
    ui.run_command(command, argument)


async def _send(ui: MainScreen, chat: Chat, text: str) -> None:
    editing, chat.editing = chat.editing, None
    ui.prompt.earlier = [*ui.prompt.earlier, text]
    try:
        text = await in_background(lambda: attach.expand(text, ui.app.folder))
        if not await _right_model(ui, chat):
            ui.prompt.load(text)
            return
    except UserError as error:
        ui.prompt.load(text)
        ui.notify_user(str(error), error=True)
        return
    if editing is not None:
        ui.app.turns.edit(chat, editing, text)
    else:
        ui.app.turns.submit(chat, text)


async def _right_model(ui: MainScreen, chat: Chat) -> bool:
    """Whether to send: asked if the conversation was held with another model than the one loaded."""
    bridge = ui.app.bridge
    loaded = bridge.reference
    if chat.id is None or not chat.model or not loaded or chat.model == loaded:
        return True
    before = chat.model.rpartition("/")[2]
    answer = await ui.app.push_screen_wait(
        Choose(
            f"This conversation was held with {before}",
            f"{loaded.rpartition('/')[2]} is loaded. Loading another model stops the replies that run.",
            [f"go on with {loaded.rpartition('/')[2]}", f"load {before}", "do not send"],
        )
    )
    if answer in (None, 2):
        return False
    if answer == 1:
        load_model(ui, chat.model)
    return True


def load_model(ui: MainScreen, name: str) -> None:
    """Load another model; replies that run are stopped."""
    for chat in ui.app.chats.all:
        if chat.live:
            ui.app.turns.stop(chat)
    ui.app.bridge.start(name)
