"""Commands for the prompt."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path

from textual.app import SuspendNotSupported
from textual.content import Content

from ...files import expanded
from ...sanitize import sanitize
from ...slash import as_typed
from ...units import size
from ...words import holds
from ..background import in_background
from ..command import Command, CommandError
from ..conversations import attachments
from ..screens.dialogs import AskLine
from ..screens.picker import Item, Picker
from ..terminal.found import unharmed
from ..ui import Ui

LARGEST_EDITED = 64 << 20
"""Bytes that are taken from an editor."""


async def editor(ui: Ui, argument: str) -> None:
    """Write the prompt in $VISUAL or $EDITOR; replies go on meanwhile."""
    name = next((os.environ[name] for name in ("VISUAL", "EDITOR") if os.environ.get(name, "").strip()), "vi")
    try:
        command = shlex.split(name)
    except ValueError as error:
        raise CommandError(f"the editor {name!r} cannot be understood: {error}; set EDITOR") from error
    with tempfile.TemporaryDirectory(prefix="termchat-") as folder:
        file = Path(folder) / "prompt.md"
        file.write_text(ui.prompt.value, encoding="utf-8", errors="replace")
        try:
            with ui.app.suspend(), ui.app.batch_update():  # nothing is drawn over it
                ended = await _run_editor([*command, str(file)])
        except SuspendNotSupported as error:
            raise CommandError("an editor cannot be opened on this terminal") from error
        ui.prompt.focus()
        if isinstance(ended, OSError):
            raise CommandError(f"the editor {command[0]!r} cannot be run: {ended.strerror}")
        if ended != 0:
            how = f"ended with code {ended}" if ended > 0 else f"was ended by signal {-ended}"
            raise CommandError(f"the editor {how}, so the prompt stays as it was")
        try:
            with file.open("rb") as handle:
                data = handle.read(LARGEST_EDITED + 1)
        except OSError as error:
            raise CommandError(
                f"the editor left no file ({error.strerror}); the prompt stays as it was"
            ) from error
        if len(data) > LARGEST_EDITED:
            raise CommandError(f"the text is larger than {size(LARGEST_EDITED)}; the prompt stays as it was")
        text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
        ui.prompt.load(text.removesuffix("\n"))


async def _run_editor(command: list[str]) -> int | OSError:
    """Run it on the terminal; its exit code, or why it could not be run."""
    with unharmed():
        try:
            process = await asyncio.create_subprocess_exec(*command)
        except OSError as error:
            return error
        try:
            return await process.wait()
        except asyncio.CancelledError:  # termchat is leaving: the terminal must be given back
            with suppress(ProcessLookupError):
                process.terminate()
            raise


async def suspend(ui: Ui, argument: str) -> None:
    """Go back to the shell; `fg` brings the program back."""
    ui.app.pause()


async def attach_file(ui: Ui, argument: str) -> None:
    """Put @FILE into the prompt; the file's text goes with the message."""
    name: str | None = argument or None
    if name is None:
        name = await ui.app.push_screen_wait(AskLine("Attach a text file", "Its path."))
    if not name:
        return
    path = ui.app.folder / expanded(name)
    text = (await in_background(lambda: attachments.read(path))).text
    quoted = f'@"{name}"' if any(char.isspace() for char in name) else f"@{name}"
    blank = " " if ui.prompt.text and not ui.prompt.text[-1].isspace() else ""
    ui.prompt.insert(f"{blank}{quoted} ", ui.prompt.document.end)
    ui.prompt.move_cursor(ui.prompt.document.end)
    ui.prompt.focus()
    ui.notify_user(f"{path.name}: {len(text)} characters go with the message")


async def earlier(ui: Ui, argument: str) -> None:
    """Choose one of the earlier prompts."""
    prompts = await ui.app.store.call(lambda store: store.prompts())

    async def search(query: str) -> list[Item]:
        found = [text for text in prompts if holds(text, query)][:200]
        return [Item(Content(sanitize(text).replace("\n", " / ")[:160]), text) for text in found]

    chosen = await ui.app.push_screen_wait(Picker("Earlier prompts", search, query=argument))
    if chosen is not None:
        ui.prompt.load(as_typed(chosen))
        ui.prompt.focus()


TYPING = (
    Command("prompt.editor", editor, "write in $EDITOR", "Typing", "editor", key="f4"),
    Command("prompt.attach", attach_file, "attach a text file", "Typing", "attach", "[FILE]"),
    Command("suspend", suspend, "go back to the shell; fg returns", "Typing", key="ctrl+z", palette=False),
    Command("prompt.history", earlier, "earlier prompts", "Typing", "history", "[WORDS]", "ctrl+r"),
)
