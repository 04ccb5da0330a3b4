"""What Enter does: a command is carried out, anything else is sent, with the files it mentions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UserError
from .. import attach
from ..background import in_background
from ..chat import Chat
from .loading import model_answers
from .registry import find, is_command

if TYPE_CHECKING:
    from ..screens.main import MainScreen


def submit(ui: MainScreen, text: str) -> None:
    """Send what was typed, or carry it out."""
    if not is_command(text) and ui.bridge.state == "absent" and not ui.chat.messages:
        ui.bridge.download()  # the welcome says that Enter does
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
        if not await model_answers(ui, chat):
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
