"""Commands for whole conversations."""

from __future__ import annotations

from functools import partial

from textual.content import Content

from ...store import search
from ...words import holds
from ..command import Command, CommandError
from ..conversations.context_full import drop_oldest, summarise
from ..screens.dialogs import AskLine, AskText, Choose
from ..screens.picker import Item, Picker
from ..ui import Ui
from .loading import model_answers
from .sending import submit
from .stopping import stop_one


async def new(ui: Ui, argument: str) -> None:
    """Begin a conversation; the argument is its first message."""
    ui.drafts.keep()
    await ui.switch_to(ui.app.conversations.new())
    if argument:
        submit(ui, argument)


async def move(step: int, ui: Ui, argument: str) -> None:
    """Go to the conversation below or above in the list."""
    conversations = ui.app.conversations.all
    await ui.switch_to(conversations[(conversations.index(ui.conversation) + step) % len(conversations)])


async def go_to(index: int, ui: Ui, argument: str) -> None:
    """Go to the conversation at a place in the list; those without a message do not count."""
    listed = [each for each in ui.app.conversations.all if each.messages or each.id is not None]
    if index < len(listed):
        await ui.switch_to(listed[index])


async def title(ui: Ui, argument: str) -> None:
    """Rename the conversation."""
    conversation = ui.conversation
    if conversation.id is None:
        raise CommandError("this conversation has no message yet, so it has no title")
    if not argument:
        answer = await ui.app.push_screen_wait(
            AskLine("Rename", "Empty: the title is made of the first message.", conversation.title)
        )
        if answer is None:
            return
        argument = answer
    await ui.app.conversations.rename(conversation, argument)


async def delete(ui: Ui, argument: str) -> None:
    """Delete the conversation; it can be brought back."""
    conversations, conversation = ui.app.conversations, ui.conversation
    at = conversations.all.index(conversation)
    ui.drafts.keep()
    stop_one(ui, conversation)
    await conversations.delete(conversation)
    await ui.switch_to(
        conversations.all[min(at, len(conversations.all) - 1)] if conversations.all else conversations.new()
    )
    if conversation.id is not None:
        ui.notify_user(f"{conversation.title}: deleted; /undelete brings it back")


async def undelete(ui: Ui, argument: str) -> None:
    """Bring back what was deleted last."""
    await ui.switch_to(await ui.app.conversations.undelete())


async def fork(ui: Ui, argument: str) -> None:
    """Copy the conversation, up to the message the keys are at, into a new one."""
    focused = ui.view.focused
    if ui.conversation.held:
        raise CommandError("this conversation is not stored yet, so it cannot be copied")
    copy = await ui.app.conversations.fork(ui.conversation, focused.id if focused is not None else None)
    await ui.switch_to(copy)
    ui.notify_user("this is the copy")


async def find(ui: Ui, argument: str) -> None:
    """Search titles and messages of all conversations."""
    conversations = ui.app.conversations

    async def items(query: str) -> list[Item]:
        if not query.strip():
            return [Item(Content(each.title), (each, None)) for each in conversations.all if each.id]
        hits = await ui.app.store.read(partial(search, query=query))
        if any(conversations.find(hit.conversation_id) is None for hit in hits):
            await conversations.windows.refresh()  # another window or program has written it
        found = []
        for hit in hits:
            conversation = conversations.find(hit.conversation_id)
            if conversation is not None:
                detail = Content(f"  {hit.snippet}").stylize("$chat-muted")
                for start, end in hit.matches:
                    detail = detail.stylize("bold underline $accent", start + 2, end + 2)
                found.append(Item(Content(hit.title), (conversation, hit.message_id), detail))
        titles = [
            Item(Content(each.title), (each, None))
            for each in conversations.all
            if each.id and holds(each.title, query)
        ]
        return [*titles, *found]

    chosen = await ui.app.push_screen_wait(Picker("Conversations", items, query=argument))
    if chosen is None:
        return
    conversation, message_id = chosen
    await ui.switch_to(conversation)
    if message_id is not None:
        await conversations.select(conversation, message_id)
        ui.go_to_message(message_id)


async def system(ui: Ui, argument: str) -> None:
    """Set the conversation's system prompt."""
    if not argument:
        answer = await ui.app.push_screen_wait(
            AskText(
                "System prompt",
                "How the model should behave. Empty: as it does by itself.",
                ui.conversation.system,
            )
        )
        if answer is None:
            return
        argument = answer
    await ui.app.conversations.set_system(ui.conversation, argument.strip())


async def compact(ui: Ui, argument: str) -> None:
    """Go on in a new conversation with room in its context."""
    conversation = ui.conversation
    if conversation.busy:
        raise CommandError("a reply is being made; Esc stops it")
    if not conversation.messages:
        raise CommandError("this conversation has no message yet")
    answer = await ui.app.push_screen_wait(
        Choose(
            "Make room in the context",
            "The conversation stays as it is. A new one goes on:",
            ["without the oldest messages", "with a summary of what was said", "cancel"],
        )
    )
    if answer in (None, 2):
        return
    if not await model_answers(ui, conversation):
        return
    last, turns = "", ui.app.turns
    with turns.occupied(conversation) as stopped:
        slot = await ui.app.engines.ready(conversation.model)
        if answer == 0:
            goes_on = await drop_oldest(ui.app.conversations, slot, conversation)
        else:
            stop = ui.hint("reply.stop")
            ui.notify_user(f"the model is summarising the conversation; {stop} stops it")
            goes_on, last = await summarise(ui.app.conversations, slot, conversation, stopped)
        queued = turns.take_back(conversation)
    await ui.switch_to(goes_on)
    if goes_on.ending == "unanswered":
        turns.regenerate(goes_on, goes_on.messages[-1])
    for text in [last, *queued] if last else queued:
        turns.submit(goes_on, text)


async def purge(ui: Ui, argument: str) -> None:
    """Remove all deleted conversations for good."""
    answer = await ui.app.push_screen_wait(
        Choose(
            "Remove all deleted conversations for good?",
            "They cannot be brought back then, and nothing of them stays in the database.",
            ["remove them", "cancel"],
        )
    )
    if answer == 0:
        count = await ui.app.conversations.purge()
        ui.notify_user(f"deleted conversations removed for good: {count}")


CONVERSATIONS = (
    Command("chat.new", new, "new conversation", "Conversations", "new", "[MESSAGE]", "ctrl+n"),
    Command("chat.find", find, "search all conversations", "Conversations", "search", "[WORDS]", "ctrl+o"),
    Command(
        "chat.next", partial(move, 1), "next conversation", "Conversations", key="ctrl+pagedown,ctrl+down"
    ),
    Command(
        "chat.previous",
        partial(move, -1),
        "previous conversation",
        "Conversations",
        key="ctrl+pageup,ctrl+up",
    ),
    *(
        Command(
            f"chat.{number}",
            partial(go_to, number - 1),
            f"conversation {number} of the list",
            "Conversations",
            key=f"alt+{number}",
            palette=False,
        )
        for number in range(1, 10)
    ),
    Command("chat.title", title, "rename", "Conversations", "title", "[TITLE]"),
    Command("chat.delete", delete, "delete", "Conversations", "delete"),
    Command("chat.undelete", undelete, "bring back the one deleted last", "Conversations", "undelete"),
    Command("chat.purge", purge, "remove what was deleted for good", "Conversations", "purge"),
    Command("chat.fork", fork, "copy into a new conversation", "Conversations", "branch"),
    Command("chat.compact", compact, "make room in the context", "Conversations", "compact"),
    Command("chat.system", system, "system prompt", "Conversations", "system", "[TEXT]"),
)
