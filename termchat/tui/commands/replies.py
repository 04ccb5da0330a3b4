"""Commands for replies: stop, again, several, continue, queue, settings, model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from ...config import resolve_sampling
from ...registry import ModelStatus
from ...settings import SAMPLING_KEYS, check_sampling, nearest
from ...store import StoredMessage
from ..format import size
from ..screens.chat_settings import ChatSettings, ChatSettingsScreen, parse
from ..screens.dialogs import Choose
from ..screens.picker import Item, Picker, matching
from .registry import Command, CommandError

if TYPE_CHECKING:
    from ..screens.main import MainScreen

MOST_ANSWERS = 16


def last_reply(ui: MainScreen) -> StoredMessage:
    """The message the keys are at, else the last one of the branch. CommandError: there is none."""
    focused = ui.conversation.focused
    if focused is not None:
        return focused
    if not ui.chat.messages:
        raise CommandError("this conversation has no message yet")
    return ui.chat.messages[-1]


async def escape(ui: MainScreen, argument: str) -> None:
    """Esc."""
    ui.escape()


async def stop(ui: MainScreen, argument: str) -> None:
    """Stop this conversation's reply, or all of them."""
    if argument == "all":
        for chat in ui.ui.controller.chats:
            if chat.busy and chat is not ui.chat:
                chat.draft = "\n\n".join([*ui.ui.controller.stop(chat), chat.draft]).strip("\n")
    elif argument:
        raise CommandError(f"/stop stops this conversation, /stop all every one; not {argument[:40]!r}")
    ui.hand_back(ui.ui.controller.stop(ui.chat))


async def interrupt(ui: MainScreen, argument: str) -> None:
    """Ctrl-C."""
    ui.interrupt()


async def regenerate(ui: MainScreen, argument: str) -> None:
    """Answer again, `[N]` times at once; the old answers stay."""
    count = 1
    if argument:
        if not argument.isdecimal() or not 1 <= int(argument) <= MOST_ANSWERS:
            raise CommandError(f"/regen takes a number from 1 to {MOST_ANSWERS}, not {argument[:40]!r}")
        count = int(argument)
    ui.ui.controller.regenerate(ui.chat, last_reply(ui), count)
    ui.prompt.focus()


async def several(ui: MainScreen, argument: str) -> None:
    """Three more answers at once."""
    await regenerate(ui, argument or "3")


async def resume(ui: MainScreen, argument: str) -> None:
    """Go on with a reply that was stopped."""
    message = last_reply(ui)
    if message.role != "assistant" or message.status == "streaming":
        raise CommandError("there is no stopped reply to continue here")
    ui.ui.controller.resume(ui.chat, message)
    ui.prompt.focus()


async def queue(ui: MainScreen, argument: str) -> None:
    """Take what is queued back into the prompt."""
    chat = ui.chat
    if not chat.queue:
        raise CommandError("nothing is queued")
    texts, chat.queue = chat.queue, []
    ui.hand_back(texts)
    ui.chat_changed(chat)


async def settings(ui: MainScreen, argument: str) -> None:
    """The conversation's settings: a form, or `NAME VALUE`, or `NAME` for the default."""
    chat, controller = ui.chat, ui.ui.controller
    if argument:
        name, _, text = argument.partition(" ")
        if name not in SAMPLING_KEYS:
            raise CommandError(f"there is no setting {name!r}; did you mean {nearest(name, SAMPLING_KEYS)}?")
        sampling = {key: value for key, value in chat.sampling.items() if key != name}
        if text.strip():
            sampling[name] = parse(name, text)
        check_sampling(sampling)
        await controller.set_params(chat, sampling)
        ui.notify_user(f"{name}: {text.strip() or 'the default'}")
        return
    bridge = ui.ui.bridge
    entry = bridge.model.entry if bridge.model is not None else None
    defaults = resolve_sampling(
        {},
        ui.ui.config.sampling,
        entry.sampling if entry is not None else None,
        bridge.engine.info.defaults if bridge.engine is not None and bridge.state == "ready" else None,
    )
    answer = await ui.app.push_screen_wait(
        ChatSettingsScreen(
            chat.title,
            ChatSettings(chat.system, chat.sampling),
            {name: setting.value for name, setting in defaults.items()},
        )
    )
    if answer is not None:
        await controller.set_system(chat, answer.system)
        await controller.set_params(chat, answer.sampling)


async def model(ui: MainScreen, argument: str) -> None:
    """Load another model, fetching it first if it is not here."""
    bridge = ui.ui.bridge
    registry = bridge.registry
    if registry is None:
        raise CommandError("the list of models is still being read")
    name: str | None = argument or None
    if name is None:
        items = [_item(status, bridge.reference) for status in registry.list_models()]

        async def search(query: str) -> list[Item]:
            found = matching(items, query)
            if not found and query:
                found = [Item(Content(f"the file or folder {query}"), query)]
            return found

        name = await ui.app.push_screen_wait(
            Picker("Models", search, selected=bridge.reference, hint="⏎ load (⇣ fetch first)   esc close")
        )
    if name is None or (name == bridge.reference and bridge.state == "ready"):
        return
    live = sum(bool(chat.live) for chat in ui.ui.controller.chats)
    if live:
        answer = await ui.app.push_screen_wait(
            Choose(
                f"Load {name}?",
                f"One model is loaded at a time: replies being made in {live} conversations are stopped, "
                "and what has come is kept.",
                ["stop them and load it", "cancel"],
            )
        )
        if answer != 0:
            return
    await ui.load_model(name)
    if bridge.registry is not None and name in bridge.registry.entries:
        await ui.fetch_if_absent()


def _item(status: ModelStatus, loaded: str) -> Item:
    entry = status.entry
    here = "●" if entry.name == loaded else "✓" if status.path is not None else "⇣"
    facts = [size(entry.size) if entry.size else "", entry.licence]
    if status.partial:
        facts.append(f"{size(status.partial)} fetched")
    text = Content.assemble(
        (f"{here} ", "$accent"),
        (f"{entry.name:<18}", "bold"),
        ("  ".join(fact for fact in facts if fact), "$chat-muted"),
    )
    return Item(text, entry.name, Content.styled(f"  {entry.description}", "$chat-muted"))


REPLIES = (
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
        priority=True,
    ),
    Command(
        "reply.again", regenerate, "answer again, beside the old answer", "Replies", "regen", "[N]", "f5"
    ),
    Command("reply.several", several, "three more answers at once", "Replies"),
    Command("reply.continue", resume, "continue a stopped reply", "Replies", "continue", key="f9"),
    Command("reply.queue", queue, "take queued messages back", "Replies", "queue"),
    Command(
        "chat.settings", settings, "settings of this conversation", "Model", "set", "[NAME [VALUE]]", "f2"
    ),
    Command("model.choose", model, "load another model", "Model", "model", "[NAME]", "ctrl+l"),
)
