"""Commands for replies: again, several, continue."""

from __future__ import annotations

from ...messages import StoredMessage
from ..command import Command, CommandError
from ..ui import Ui
from .loading import model_answers

MOST_ANSWERS = 16


def last_reply(ui: Ui) -> StoredMessage:
    """The message the keys are at, else the last one of the branch. CommandError: there is none."""
    focused = ui.view.focused
    if focused is not None:
        return focused
    if not ui.conversation.messages:
        raise CommandError("this conversation has no message yet")
    return ui.conversation.messages[-1]


async def regenerate(ui: Ui, argument: str) -> None:
    """Answer again, `[N]` times at once; the old answers stay."""
    count = 1
    if argument:
        if not argument.isdecimal() or not 1 <= int(argument) <= MOST_ANSWERS:
            raise CommandError(f"/regen takes a number from 1 to {MOST_ANSWERS}, not {argument[:40]!r}")
        count = int(argument)
    conversation, message = ui.conversation, last_reply(ui)
    if await model_answers(ui, conversation):
        ui.app.turns.regenerate(conversation, message, count)
        ui.prompt.focus()


async def several(ui: Ui, argument: str) -> None:
    """Three more answers at once."""
    await regenerate(ui, argument or "3")


async def resume(ui: Ui, argument: str) -> None:
    """Go on with a reply that was stopped."""
    message = last_reply(ui)
    if message.role != "assistant" or message.status == "streaming":
        raise CommandError("there is no stopped reply to continue here")
    conversation = ui.conversation
    if await model_answers(ui, conversation):
        ui.app.turns.resume(conversation, message)
        ui.prompt.focus()


REPLIES = (
    Command(
        "reply.again", regenerate, "answer again, beside the old answer", "Replies", "regen", "[N]", "f5"
    ),
    Command("reply.several", several, "three more answers at once", "Replies"),
    Command("reply.continue", resume, "continue a stopped reply", "Replies", "continue", key="f9"),
)
