"""Commands for models: which one answers in a conversation, and which are loaded."""

from __future__ import annotations

from collections.abc import Sequence, Set

from textual.content import Content

from ...elsewhere.everywhere import everywhere
from ...elsewhere.found import Found
from ...hub import PREFIX
from ...resolved_model import ModelStatus
from ...units import size
from ..background import in_background
from ..command import Command, CommandError
from ..engines.model_slot import ModelSlot
from ..screens.dialogs import Choose
from ..screens.picker import Item, Picker, matching
from ..ui import Ui
from .loading import load, replies, unload, using

LONGEST_NAME = 44
"""Characters of a name in the list: with its size it has one line at 80 columns."""


async def choose(ui: Ui, argument: str) -> None:
    """Go on with another model, here and in new conversations; it is downloaded first if it is not here."""
    engines, conversation = ui.app.engines, ui.conversation
    name = argument or await _picked(ui)
    if not name:
        return
    slot = engines.of(ui.app.loader.reference(name))
    if slot.state in ("absent", "failed"):
        slot.look()  # it may have come meanwhile
    if slot.state == "absent":
        slot.download()
    elif not await load(ui, slot, []):
        return
    engines.default = slot
    await ui.app.conversations.set_model(conversation, slot.reference)


async def _picked(ui: Ui) -> str | None:
    """The model chosen from a list; None: another thing was done, or nothing."""
    registry, engines = ui.app.loader.registry, ui.app.engines
    if registry is None:
        raise CommandError("the list of models is still being read")
    elsewhere = await in_background(lambda: [each for each in everywhere() if not each.problem])
    loaded = {slot.reference for slot in engines.loaded}
    files = [
        _file_item(slot, loaded)
        for slot in engines.known
        if slot.model is not None and slot.model.entry is None and not slot.model.elsewhere
    ]
    known = registry.list_models()
    items = [*files, *(_item(status, loaded) for status in known if status.path is not None)]
    items += [_elsewhere_item(found, loaded) for found in elsewhere]
    items += [_item(status, loaded) for status in known if status.path is None]
    items += [_unload_item(slot) for slot in engines.loaded]

    async def search(query: str) -> list[Item]:
        found = matching(items, query)
        if not found and query:
            kind = "the model of the Hub" if query.startswith(PREFIX) else "the file or folder"
            found = [Item(Content(f"{kind} {query}"), query)]
        return found

    hint = "enter use   ● loaded   ✓ on this machine   ⇣ fetch first   esc close"
    picked: str | ModelSlot | None = await ui.app.push_screen_wait(
        Picker("Models", search, selected=ui.slot.reference, hint=hint)
    )
    if isinstance(picked, ModelSlot):
        await _free(ui, picked)
        return None
    return picked


async def free(ui: Ui, argument: str) -> None:
    """Take a model out of the memory; it is loaded again when it is needed."""
    engines = ui.app.engines
    slot = engines.of(ui.app.loader.reference(argument)) if argument else ui.slot
    if slot.engine is None:
        names = " and ".join(other.title for other in engines.loaded) or "none"
        raise CommandError(f"{slot.title} is not loaded; loaded: {names}")
    await _free(ui, slot)


async def why(ui: Ui, argument: str) -> None:
    """Say all that is known of why the model cannot be fetched or used."""
    slot = ui.slot
    if not slot.details:
        raise CommandError(f"there is nothing to say against {slot.title}")
    await ui.app.push_screen_wait(Choose(f"What is wrong with {slot.title}", slot.details, ["close"]))


async def _free(ui: Ui, slot: ModelSlot) -> None:
    busy = len(using(ui, slot))
    if busy:
        answer = await ui.app.push_screen_wait(
            Choose(f"Unload {slot.title}?", f"It is making {replies(busy)}.", ["stop and unload", "cancel"])
        )
        if answer != 0:
            return
    await unload(ui, slot)
    ui.notify_user(f"{slot.title} is unloaded; the next message loads it again")


def _unload_item(slot: ModelSlot) -> Item:
    text = Content.assemble(("✗ ", "$accent"), ("unload ", "$chat-muted"), (slot.title, "bold"))
    return Item(
        text, slot, Content.styled("  out of the memory; the next message loads it again", "$chat-muted")
    )


def _file_item(slot: ModelSlot, loaded: Set[str]) -> Item:
    assert slot.model is not None, "it is a file that was found"
    here = "●" if slot.reference in loaded else "✓"
    text = _line(here, slot.title, ["a file of yours"])
    return Item(text, slot.reference, Content.styled(f"  {slot.model.path}", "$chat-muted"))


def _elsewhere_item(found: Found, loaded: Set[str]) -> Item:
    here = "●" if found.name in loaded else "✓"
    facts = [size(found.size) if found.size is not None else "", found.program, found.licence]
    text = _line(here, found.name, facts)
    return Item(text, found.name, Content.styled(f"  {found.path}", "$chat-muted"))


def _item(status: ModelStatus, loaded: Set[str]) -> Item:
    entry = status.entry
    here = "●" if entry.name in loaded else "✓" if status.path is not None else "⇣"
    facts = entry.facts
    if status.partial:
        facts.append(f"{size(status.partial)} fetched")
    text = _line(here, entry.name, facts)
    said = entry.description or status.path or entry.sources[0]
    return Item(text, entry.name, Content.styled(f"  {said}", "$chat-muted"))


def _line(mark: str, name: str, facts: Sequence[str]) -> Content:
    """The first line of a model. A long name loses its middle: what tells files apart stands at both ends."""
    if len(name) > LONGEST_NAME:
        half = (LONGEST_NAME - 1) // 2
        name = f"{name[:half]}…{name[half - LONGEST_NAME + 1 :]}"
    return Content.assemble(
        (f"{mark} ", "$accent"),
        (f"{name:<18}  ", "bold"),
        ("  ".join(filter(None, facts)), "$chat-muted"),
    )


def _known_names(ui: Ui) -> list[str]:
    """Registered models, and files that were used; what other programs have is looked for in the list."""
    registry = ui.app.loader.registry
    registered = [] if registry is None else sorted(registry.entries)
    return list(dict.fromkeys([*registered, *(slot.reference for slot in ui.app.engines.known)]))


MODELS = (
    Command(
        "model.choose",
        choose,
        "use another model",
        "Model",
        "model",
        "[NAME]",
        "f6,alt+m",
        named=_known_names,
    ),
    Command(
        "model.unload",
        free,
        "take a model out of the memory",
        "Model",
        "unload",
        "[NAME]",
        named=lambda ui: [slot.reference for slot in ui.app.engines.loaded],
    ),
    Command("model.why", why, "why the model cannot be fetched or used", "Model", "why"),
)
