"""Commands that leave and stop: Esc, Ctrl-C, /stop, and what is queued."""

from __future__ import annotations

import time

from textual.widgets.text_area import Selection

from ..command import Command, CommandError
from ..conversations.conversation import Conversation
from ..keymap import shown
from ..ui import Ui

AGAIN_SECONDS = 1.0
"""Two presses of Esc within this time are one wish."""

UP = shown("up")
SHOWN = 60
"""Characters that a notice shows of a text."""


async def escape(ui: Ui, argument: str) -> None:
    """Leave what one is in; else stop the reply; twice: edit the last prompt."""
    conversation = ui.conversation
    again = time.monotonic() - ui.escaped_at < AGAIN_SECONDS
    ui.escaped_at = 0.0  # one that leaves or stops something is not the first of two
    elsewhere = ui.focused not in (ui.prompt, ui.view.transcript, None) or ui.view.focused is not None
    ui.prompt.focus()  # a click into the conversation is no place that Esc would leave
    if elsewhere:
        ui.want(swapped=False)
    elif ui.prompt.offer.items:
        ui.prompt.refuse()
    elif conversation.preparing:
        stop_one(ui, conversation)
    elif conversation.editing is not None:
        ui.drafts.leave_edit()
    elif conversation.busy:
        stop_one(ui, conversation)
    elif ui.slot.state == "downloading":
        ui.slot.stop_download()
    elif ui.prompt.emptied and not ui.prompt.text:
        ui.prompt.load(ui.prompt.emptied)
    elif not again:
        ui.escaped_at = time.monotonic()
    elif ui.prompt.text.strip():
        empties = ui.hint("interrupt")
        ui.notify_user(f"the prompt has a text: {empties} empties it, then esc twice edits the last message")
    else:
        asked = [message for message in conversation.messages if message.role == "user"]
        if asked:
            ui.drafts.edit(asked[-1])
    ui.conversation_changed(conversation)


async def interrupt(ui: Ui, argument: str) -> None:
    """Copy what is selected, else stop the reply, else empty the prompt, else say how to leave.

    Never loses a text: what was in the prompt comes back as the last of the earlier ones.
    """
    leaves = f"{ui.hint('quit')} quits"
    if _copied(ui):
        return
    if ui.conversation.busy or ui.conversation.preparing:
        stop_one(ui, ui.conversation)
    elif ui.prompt.text.strip():
        text = " ".join(ui.prompt.text.split())
        text = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
        ui.prompt.empty()
        back = ui.hint("reply.stop")
        ui.notify_user(f"emptied; {back} or {UP} brings it back: {text} ({leaves})")
    else:
        ui.notify_user(leaves)


async def copy(ui: Ui, argument: str) -> None:
    """Copy what is selected, and nothing else."""
    if not _copied(ui):
        raise CommandError("nothing is selected")


def _copied(ui: Ui) -> bool:
    """Copy what is selected, if something is."""
    selected = ui.prompt.selected_text or ui.get_selected_text()
    if selected:
        ui.app.copy_to_clipboard(selected)
        ui.clear_selection()  # the next one stops a reply again
        ui.prompt.selection = Selection.cursor(ui.prompt.selection.end)
        ui.notify_user("copied")
    return bool(selected)


def stop_one(ui: Ui, conversation: Conversation) -> None:
    """Stop a conversation; what is queued or on its way goes to where it can be edited."""
    taken, conversation.preparing = conversation.preparing, []
    for each in reversed(taken):
        ui.drafts.put_back(conversation, each)
    ui.drafts.give_back(conversation, ui.app.turns.stop(conversation))


async def stop(ui: Ui, argument: str) -> None:
    """Stop this conversation's reply, or all of them."""
    if argument not in ("", "all"):
        raise CommandError(f"/stop stops this conversation, /stop all every one; not {argument[:40]!r}")
    if argument:
        for conversation in ui.app.conversations.all:
            if conversation.busy:
                stop_one(ui, conversation)
    else:
        stop_one(ui, ui.conversation)


async def queue(ui: Ui, argument: str) -> None:
    """Take what is queued back into the prompt."""
    texts = ui.app.turns.take_back(ui.conversation)
    if not texts:
        raise CommandError("nothing is queued")
    ui.drafts.give_back(ui.conversation, texts)


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
        "copy what is selected; else stop the reply; else empty the prompt",
        "Replies",
        key="ctrl+c",
        palette=False,
    ),
    Command(
        "selection.copy", copy, "copy what is selected", "Replies", key="ctrl+shift+c,super+c", palette=False
    ),
    Command("reply.queue", queue, "take queued messages back", "Replies", "queue"),
)
