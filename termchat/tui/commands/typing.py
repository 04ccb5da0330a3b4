"""Commands for the prompt."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported
from textual.content import Content

from ...sanitize import sanitize
from .. import attach
from ..background import in_background
from ..command import Command, CommandError
from ..screens.dialogs import AskLine
from ..screens.picker import Item, Picker

if TYPE_CHECKING:
    from ..screens.main import MainScreen


async def editor(ui: MainScreen, argument: str) -> None:
    """Write the prompt in $VISUAL or $EDITOR; replies go on meanwhile."""
    name = next((os.environ[name] for name in ("VISUAL", "EDITOR") if os.environ.get(name, "").strip()), "vi")
    try:
        command = shlex.split(name)
    except ValueError as error:
        raise CommandError(f"the editor {name!r} cannot be understood: {error}; set EDITOR") from error
    with tempfile.TemporaryDirectory(prefix="termchat-") as folder:
        file = Path(folder) / "prompt.md"
        file.write_text(ui.prompt.value, encoding="utf-8")
        try:
            with ui.app.suspend(), ui.app.batch_update():  # nothing is drawn over it
                process = await asyncio.create_subprocess_exec(*command, str(file))
                code = await process.wait()
        except SuspendNotSupported as error:
            raise CommandError("an editor cannot be opened on this terminal") from error
        except OSError as error:
            raise CommandError(f"the editor {command[0]!r} cannot be run: {error.strerror}") from error
        if code == 0:
            ui.prompt.load(file.read_text(encoding="utf-8", errors="replace").removesuffix("\n"))
        else:
            ui.notify_user(f"the editor ended with code {code}, so the prompt stays as it was")
    ui.prompt.focus()


async def attach_file(ui: MainScreen, argument: str) -> None:
    """Put @FILE into the prompt; the file's text goes with the message."""
    name: str | None = argument or None
    if name is None:
        name = await ui.app.push_screen_wait(AskLine("Attach a text file", "Its path."))
    if not name:
        return
    path = ui.app.folder / Path(name).expanduser()
    text = await in_background(lambda: attach.read(path))
    quoted = f'@"{name}"' if any(char.isspace() for char in name) else f"@{name}"
    ui.prompt.load(f"{ui.prompt.value.rstrip()} {quoted} ".lstrip())
    ui.prompt.focus()
    ui.notify_user(f"{path.name}: {len(text)} characters go with the message")


async def history(ui: MainScreen, argument: str) -> None:
    """Choose one of the earlier prompts."""
    prompts = await ui.app.history.call(lambda store: store.prompts())

    async def search(query: str) -> list[Item]:
        words = query.lower().split()
        found = [text for text in prompts if all(word in text.lower() for word in words)][:200]
        return [Item(Content(sanitize(text).replace("\n", " / ")[:160]), text) for text in found]

    chosen = await ui.app.push_screen_wait(Picker("Earlier prompts", search, query=argument))
    if chosen is not None:
        ui.prompt.load(chosen)
        ui.prompt.focus()


TYPING = (
    Command("prompt.editor", editor, "write in $EDITOR", "Typing", "editor", key="f4"),
    Command("prompt.attach", attach_file, "attach a text file", "Typing", "attach", "[FILE]"),
    Command("prompt.history", history, "earlier prompts", "Typing", "history", "[WORDS]", "ctrl+r"),
)
