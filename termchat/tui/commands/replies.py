"""Commands for replies: again, several, continue."""

from __future__ import annotations

from ...messages import StoredMessage
from ..command import Command, CommandError, number
from ..screens.answers import AnswersScreen
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
    count = number("regen", argument or "1", 1, MOST_ANSWERS)
    conversation, message = ui.conversation, last_reply(ui)
    if await model_answers(ui, conversation):
        ui.app.turns.regenerate(conversation, message, count)
        ui.prompt.focus()


async def several(ui: Ui, argument: str) -> None:
    """Three more answers at once."""
    await regenerate(ui, argument or "3")


async def best(ui: Ui, argument: str) -> None:
    """`[N]` more answers side by side, or the versions that are there, to keep one."""
    conversation, message = ui.conversation, last_reply(ui)
    parent = message.id if message.role == "user" else message.parent_id
    if parent is None:
        raise CommandError("there is no question to answer here")
    ids = [] if message.role == "user" else conversation.siblings(message)
    count = number("best", argument, 2, MOST_ANSWERS) if argument else len(ids) if len(ids) > 1 else 3
    if argument or len(ids) < 2:
        if conversation.busy:
            raise CommandError("a reply is being made; Esc stops it")
        if not await model_answers(ui, conversation):
            return
        ids = ui.app.turns.regenerate(conversation, message, count)
    now = ui.app.conversations.saving.now
    question = conversation.tree[parent].text if conversation.tree and parent in conversation.tree else ""
    confidence = ui.view.confidence
    screen = AnswersScreen(conversation, question, count, ids, now, ui.app.glyphs, confidence=confidence)
    chosen = await ui.app.push_screen_wait(screen)
    ui.prompt.focus()
    if chosen is None:
        left, right = ui.hint("reply.version_left"), ui.hint("reply.version_right")
        ui.notify_user(f"the answers are versions of one message: {left} {right} go through them")
        return
    for id, reply in conversation.live.items():
        if id != chosen:
            reply.stop()
    await ui.app.conversations.select(conversation, chosen)


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
    Command("reply.best", best, "answers side by side, to keep one", "Replies", "best", "[N]"),
    Command("reply.continue", resume, "continue a stopped reply", "Replies", "continue", key="f9"),
)
