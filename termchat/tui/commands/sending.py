"""What Enter does: a command is carried out, anything else is sent, with the files it mentions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import UserError
from ..attach import expand, mentioned
from ..background import in_background
from ..chat import Chat
from ..command import find, is_command
from .loading import model_answers

if TYPE_CHECKING:
    from ..screens.main import MainScreen

UNSURE = ("absent", "failed", "unloaded")
"""States of a model in which the user may have to be asked before a message is sent."""


def submit(ui: MainScreen, text: str) -> None:
    """Send what was typed, or carry it out."""
    chat, bridge = ui.chat, ui.bridge
    if not is_command(text) and bridge.state == "absent" and (chat.busy or not chat.messages):
        bridge.download()  # it is said on the screen that Enter does
    if not text.strip():
        return
    if is_command(text):
        _carry_out(ui, text)
        return
    ui.prompt.load("")
    ui.prompt.earlier = [*ui.prompt.earlier, text]
    text = text.removeprefix("/") if text.startswith("//") else text
    if mentioned(text) or bridge.state in UNSURE or ui.sending.locked():
        ui.run_worker(_prepare(ui, chat, text))
    else:  # at once, so that no key that follows can come before
        _send(ui, chat, text)


def _carry_out(ui: MainScreen, text: str) -> None:
    from . import COMMANDS

    try:
        command, argument = find(COMMANDS, text)
    except UserError as error:
        ui.notify_user(f"{error} {ui.app.keys.hint('help')} lists them all", error=True)
        return
    ui.prompt.load("")
    ui.run_command(command, argument)


async def _prepare(ui: MainScreen, chat: Chat, text: str) -> None:
    """Send a text that needs files or a question about the model; one after another, as they were typed."""
    chat.preparing += 1
    try:
        async with ui.sending:
            whole = await in_background(lambda: expand(text, ui.app.folder))
            if await model_answers(ui, chat):
                _send(ui, chat, whole)
            else:
                ui.give_back(chat, [text])
    except UserError as error:
        ui.give_back(chat, [text])
        ui.notify_user(str(error), error=True)
    finally:
        chat.preparing -= 1


def _send(ui: MainScreen, chat: Chat, text: str) -> None:
    editing, chat.editing = chat.editing, None
    if editing is not None:
        ui.app.turns.edit(chat, editing, text)
    else:
        ui.app.turns.submit(chat, text)
