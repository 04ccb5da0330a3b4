"""Commands that leave and stop: Esc, Ctrl-C, /stop, and what is queued."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..chat import Chat
from ..command import Command, CommandError

if TYPE_CHECKING:
    from ..screens.main import MainScreen

AGAIN_SECONDS = 1.0
"""Two presses of Esc within this time are one wish."""


async def escape(ui: MainScreen, argument: str) -> None:
    """Leave what one is in; else stop the reply; twice: edit the last prompt."""
    chat = ui.chat
    again = time.monotonic() - ui.escaped_at < AGAIN_SECONDS
    ui.escaped_at = time.monotonic()
    if ui.focused is not ui.prompt:
        ui.want(swapped=False)
        ui.prompt.focus()
    elif chat.editing is not None:
        chat.editing = None
        ui.conversation.mark(None)
        ui.prompt.load("")
    elif chat.busy:
        stop_one(ui, chat)
    elif ui.bridge.state == "downloading":
        ui.bridge.stop_download()
    elif again and not ui.prompt.text.strip():
        ui.escaped_at = 0.0
        asked = [message for message in chat.messages if message.role == "user"]
        if asked:
            ui.edit_message(asked[-1])
    ui.chat_changed(chat)


async def interrupt(ui: MainScreen, argument: str) -> None:
    """Copy what is selected, else stop the reply, else say how to leave. Never loses a text."""
    selected = ui.prompt.selected_text or ui.get_selected_text()
    if selected:
        ui.app.copy_to_clipboard(selected)
        ui.notify_user("copied")
    elif ui.chat.busy:
        stop_one(ui, ui.chat)
    else:
        ui.notify_user(f"{ui.app.keys.hint('quit')} quits")


def stop_one(ui: MainScreen, chat: Chat) -> None:
    """Stop a conversation; its queued texts go to where they can be edited."""
    ui.give_back(chat, ui.app.turns.stop(chat))


async def stop(ui: MainScreen, argument: str) -> None:
    """Stop this conversation's reply, or all of them."""
    if argument not in ("", "all"):
        raise CommandError(f"/stop stops this conversation, /stop all every one; not {argument[:40]!r}")
    if argument:
        for chat in ui.app.chats.all:
            if chat.busy:
                stop_one(ui, chat)
    else:
        stop_one(ui, ui.chat)


async def queue(ui: MainScreen, argument: str) -> None:
    """Take what is queued back into the prompt."""
    texts = ui.app.turns.take_back(ui.chat)
    if not texts:
        raise CommandError("nothing is queued")
    ui.give_back(ui.chat, texts)


STOPPING = (
    Command(
        "reply.stop",
        escape,
        "stop, or leave; twice: edit the last prompt",
        "Replies",
        key="escape",
        palette=False,
    ),
    Command("reply.stop_all", stop, "stop this reply, or all of them", "Replies", "stop", "[all]"),
    Command(
        "interrupt",
        interrupt,
        "copy what is selected; else stop the reply",
        "Replies",
        key="ctrl+c",
        palette=False,
    ),
    Command("reply.queue", queue, "take queued messages back", "Replies", "queue"),
)
