"""What Enter does: a command is carried out, anything else is sent, with the files it mentions."""

from __future__ import annotations

from ...errors import UserError
from ...habits import leaves
from ...messages import prompt_of
from ...sanitize import is_blank
from ...slash import is_command
from ...units import size
from ..background import in_background
from ..conversations.attachments import Files, gather
from ..conversations.conversation import Conversation
from ..conversations.outgoing import Outgoing
from ..engines.model_slot import ModelSlot
from ..ui import Ui
from .loading import model_answers

UNSURE = ("absent", "failed", "unloaded")
"""States of a model in which the user may have to be asked before a message is sent."""


def submit(ui: Ui, text: str, origins: bytes = b"") -> None:
    """Send what was typed, or carry it out. origins: of its characters; without them it was put back."""
    conversation, slot = ui.conversation, ui.slot
    if not is_command(text) and slot.state == "absent" and (conversation.busy or not conversation.messages):
        slot.download()  # it is said on the screen that Enter does
    if is_blank(text):
        return
    if is_command(text):
        ui.run_line(text)
        return
    if conversation.editing is not None and conversation.busy:
        ui.notify_user("a reply is being made: esc stops it, then enter sends the new version")
        return
    if leaves(text):
        ui.notify_user(f"{text.strip()} is sent to the model; {ui.hint('quit')} leaves")
    if conversation.refusal:
        ui.withdraw(conversation.refusal)
        conversation.refusal = ""
    message = ui.drafts.take(text, origins)
    if "@" in text or slot.state in UNSURE or ui.sending.locked() or _may_be_too_long(text, slot):
        conversation.preparing.append(message)
        ui.run_worker(_prepare(ui, conversation, message))
    else:  # at once, so that no key that follows can come before
        _send(ui, conversation, message, message.said)


async def _prepare(ui: Ui, conversation: Conversation, message: Outgoing) -> None:
    """Send a text that needs files, a question about the model, or a look at its length.

    One after another, as they were typed. One that is taken back meanwhile is not sent.
    """

    def goes() -> bool:
        return message in conversation.preparing

    refused = ""
    try:
        async with ui.sending:
            files = await in_background(lambda: gather(message.said, message.said_origins, ui.app.folder))
            if goes() and message.text != conversation.refused:
                refused = await _refusal(ui, conversation, message, files)
            if goes() and not refused and await model_answers(ui, conversation) and goes():
                conversation.preparing.remove(message)
                conversation.refused = ""
                _send(ui, conversation, message, files.added(message.said))
                for note in files.notes:
                    ui.notify_user(note)
    except UserError as error:
        refused = str(error)
    if goes():
        conversation.preparing.remove(message)
        conversation.refused = message.text if refused else ""
        ui.drafts.put_back(conversation, message)
        if refused:
            conversation.refusal = refused
            ui.notify_user(refused, error=True)


async def _refusal(ui: Ui, conversation: Conversation, message: Outgoing, files: Files) -> str:
    """Why a text is not sent, for its files or its length, if the user does not insist; "" if it can be."""
    if files.problems:
        return f"{'; '.join(files.problems)}: nothing is sent; enter again sends the text without it"
    if files.asked:
        names = ", ".join(files.asked)
        return f"{names} would go along; enter again sends it so, without its @ the file stays here"
    slot, text = ui.app.engines.of(conversation.model), message.said
    engine = slot.engine
    if engine is None or not (files.going or _may_be_too_long(text, slot)):
        return ""
    from engine import EngineError, Message

    if not files.going:  # one that only has no room below the others goes along to a new conversation
        above = []
    elif message.editing is None:
        above = conversation.messages
    else:
        above = conversation.branch(message.editing.parent_id)
    prompt = [*prompt_of(above, conversation.system), Message("user", files.added(text))]
    most = engine.info.context_length
    try:
        tokens = len(await engine.tokenize(prompt))
    except EngineError as error:
        if error.code != "prompt_too_long":
            return ""  # the reply will say so
        tokens = most
    if tokens < most:
        return ""
    if not files.going:
        return (
            f"the message has {tokens} tokens or more, but the context holds {most}, so nothing is sent; "
            "shorten it, or press enter again to try"
        )
    names = ", ".join(f"{each.name} ({size(len(each.text))})" for each in files.going)
    return (
        f"with {names} the prompt has {tokens} tokens or more, but the context holds {most}, "
        "so nothing is sent; attach less, or press enter again to try"
    )


def _may_be_too_long(text: str, slot: ModelSlot) -> bool:
    """Whether a message alone may fill the context: a character is at most as many tokens as bytes."""
    most = slot.context_length
    return most is not None and 4 * len(text) >= most


def _send(ui: Ui, conversation: Conversation, message: Outgoing, text: str) -> None:
    if message.editing is None:
        ui.app.turns.submit(conversation, text)
    elif not ui.app.turns.edit(conversation, message.editing, text):
        ui.drafts.put_back(conversation, message)
        return
    if conversation is ui.conversation:  # what was said is to be seen, wherever the user had scrolled to
        ui.view.follow()
