"""Commands for the prompt."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from ...sanitize import sanitize
from .. import attach
from ..background import in_background
from ..screens.dialogs import AskLine
from ..screens.picker import Item, Picker
from .registry import Command, CommandError

if TYPE_CHECKING:
    from ..screens.main import MainScreen


async def editor(ui: MainScreen, argument: str) -> None:
    """Write the prompt in $VISUAL or $EDITOR."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="termchat-") as folder:
        file = Path(folder) / "prompt.md"
        file.write_text(ui.prompt.value, encoding="utf-8")
        try:
            with ui.app.suspend():
                done = subprocess.run([*command, str(file)], check=False)
        except FileNotFoundError as error:
            raise CommandError(f"there is no editor {command[0]!r}; set EDITOR") from error
        if done.returncode == 0:
            ui.prompt.load(file.read_text(encoding="utf-8", errors="replace").removesuffix("\n"))
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
        return [Item(Content(sanitize(text).replace("\n", " ⏎ ")[:160]), text) for text in found]

    chosen = await ui.app.push_screen_wait(Picker("Earlier prompts", search, query=argument))
    if chosen is not None:
        ui.prompt.load(chosen)
        ui.prompt.focus()


TYPING = (
    Command("prompt.editor", editor, "write in $EDITOR", "Typing", "editor", key="f4"),
    Command("prompt.attach", attach_file, "attach a text file", "Typing", "attach", "[FILE]"),
    Command("prompt.history", history, "earlier prompts", "Typing", "history", "[WORDS]", "ctrl+r"),
)
