"""Commands for the message the keys are at."""

from __future__ import annotations

from functools import partial

from ...messages import StoredMessage
from ..command import Command, CommandError, number
from ..ui import Ui
from .conversations import fork
from .replies import last_reply, regenerate


async def step(rows: int, ui: Ui, argument: str) -> None:
    """Move the keys to another message; below the last one is the prompt."""
    if not ui.view.step(rows):
        ui.prompt.focus()


async def copy(ui: Ui, argument: str) -> None:
    """Copy a message, or with `code` its last code block."""
    if argument == "code":
        await copy_code(ui, "")
        return
    message = last_reply(ui)
    live = ui.conversation.live.get(message.id)
    ui.app.copy_to_clipboard(live.text if live is not None else message.text)
    ui.notify_user("the message is copied")


async def copy_code(ui: Ui, argument: str) -> None:
    """Copy the code blocks of a message, one with each press, the last one first."""
    message = last_reply(ui)
    blocks = ui.view.code_blocks(message.id)
    if not blocks:
        raise CommandError("this message has no code block")
    at = ui.view.next_code(message.id)
    ui.app.copy_to_clipboard(blocks[at])
    ui.notify_user(f"code block {at + 1} of {len(blocks)} is copied")


async def edit(ui: Ui, argument: str) -> None:
    """Edit a message of the user: the one the keys are at, the last one, or number N."""
    asked = [message for message in ui.conversation.messages if message.role == "user"]
    if not asked:
        raise CommandError("there is no message of yours to edit")
    if argument:
        ui.drafts.edit(asked[number("edit", argument, 1, len(asked)) - 1])
        return
    chosen: StoredMessage | None = ui.view.focused
    if chosen is not None and chosen.role != "user":
        parent = chosen.parent_id
        chosen = next((each for each in asked if each.id == parent), None)
    ui.drafts.edit(chosen or asked[-1])


async def version(step: int, ui: Ui, argument: str) -> None:
    """Show the previous or next version of a message."""
    message = last_reply(ui)
    ids = ui.conversation.siblings(message)
    at = ids.index(message.id) + step
    if not 0 <= at < len(ids):
        return
    on_message = ui.view.focused is not None
    await ui.app.conversations.select(ui.conversation, ids[at])
    if on_message:
        ui.go_to_message(ids[at])


async def fold(ui: Ui, argument: str) -> None:
    """Fold or unfold the thinking of a message."""
    focused = ui.view.focused
    if focused is not None:
        ui.view.fold_thinking(focused.id)


MESSAGES = (
    Command(
        "message.previous", partial(step, -1), "go up one message", "Messages", key="alt+up", palette=False
    ),
    Command(
        "message.next", partial(step, 1), "go down one message", "Messages", key="alt+down", palette=False
    ),
    Command("message.copy", copy, "copy", "Messages", key="y", palette=False),
    Command("message.code", copy_code, "copy its code block", "Messages", key="c", palette=False),
    Command("message.edit", edit, "edit as a new version", "Messages", key="e", palette=False),
    Command("message.again", regenerate, "answer again", "Messages", key="r", palette=False),
    Command("message.branch", fork, "copy up to here into a new one", "Messages", key="b", palette=False),
    Command("message.left", partial(version, -1), "previous version", "Messages", key="left", palette=False),
    Command("message.right", partial(version, 1), "next version", "Messages", key="right", palette=False),
    Command("message.fold", fold, "fold the thinking", "Messages", key="z", palette=False),
    Command("reply.copy", copy, "copy the last reply", "Messages", "copy", "[code]"),
    Command("reply.edit", edit, "edit your last message, or number N", "Messages", "edit", "[N]"),
    Command("reply.version_left", partial(version, -1), "previous answer", "Messages", key="alt+left"),
    Command("reply.version_right", partial(version, 1), "next answer", "Messages", key="alt+right"),
)
