"""What can be completed in the prompt: commands, the words that may follow them, and files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

from ..files import expanded
from ..slash import is_command
from ..words import folded
from .background import in_background
from .command import Command
from .conversations.attachments import begins
from .offer import Completion, Unfinished
from .ui import Ui

LOOKED_AT = 5000
"""Entries of a folder that are read; who has more of them types on."""

Entry = tuple[str, bool]
"""A name in a folder, and whether it is one itself."""

_WORD = re.compile(r"(?:\\\s|\S)*")  # a blank that belongs to a name stands behind a backslash


class CommandCompleter:
    """Completes what the prompt takes: `Completer` says how."""

    def __init__(self, ui: Ui, commands: Sequence[Command]) -> None:
        self._ui = ui
        self._commands = {command.slash: command for command in commands if command.slash}
        self._above: str | None = None  # the folder that was listed last, as it is typed
        self._entries: list[Entry] = []

    def unfinished(self, before: str, *, first: bool) -> Unfinished | None:
        """What a line up to the cursor ends with, if that can be completed. first: whether it is line one."""
        if first and is_command(before):
            name, blank, argument = before[1:].partition(" ")
            command = self._commands.get(name.lower())
            if not blank:
                return Unfinished("command", 1, name)
            if command is None:
                return None
            kind: Literal["choice", "file"] = "file" if command.argument == "[FILE]" else "choice"
            return Unfinished(kind, len(before) - len(argument), argument, command.slash)
        at = before.rfind("@")
        if at < 0 or not begins(before, at) or _WORD.fullmatch(before, at + 1) is None:
            return None
        return Unfinished("file", at + 1, before[at + 1 :])

    def completions(self, unfinished: Unfinished) -> list[Completion] | None:
        """What it may become, the best first. None: the folder has to be listed first."""
        if unfinished.kind == "file":
            return None if self._above != unfinished.above else _files(unfinished, self._entries)
        typed = unfinished.typed.lower()
        if unfinished.kind == "command":
            found = (command for name, command in self._commands.items() if typed in name)
            return [
                _of_command(command)
                for command in sorted(found, key=lambda command: not command.slash.startswith(typed))
            ]
        return [
            Completion(name, name)
            for name in self._commands[unfinished.command].choices(self._ui)
            if name.lower().startswith(typed) and name != unfinished.typed
        ]

    async def list_folder(self, unfinished: Unfinished) -> None:
        """See what is in the folder of a file that is being typed."""
        above, folder = unfinished.above, self._ui.app.folder
        entries = await in_background(lambda: _listed(above, folder))
        self._above, self._entries = above, entries

    def forget(self) -> None:
        """Look anew the next time: files come and go."""
        self._above = None


def _of_command(command: Command) -> Completion:
    blank = " " if command.argument else ""
    return Completion(f"{command.slash}{blank}", command.usage, command.title)


def _listed(above: str, folder: Path) -> list[Entry]:
    """The names in a folder, each with whether it is one. Blocks."""
    try:
        with os.scandir(folder / expanded(above)) as entries:
            found = [(entry.name, os.path.isdir(entry.path)) for entry in islice(entries, LOOKED_AT)]
    except (OSError, ValueError, RuntimeError):  # no folder, or no name that one could have
        return []
    return sorted(found, key=lambda each: folded(each[0]))


def _files(unfinished: Unfinished, entries: Sequence[Entry]) -> list[Completion]:
    """Those whose name begins as it is typed; hidden ones only for a dot."""
    above, begun = unfinished.above, unfinished.path[len(unfinished.above) :]
    found = []
    for name, is_folder in entries:
        if not folded(name).startswith(folded(begun)) or not name.isprintable():
            continue
        if name.startswith(".") and not begun.startswith("."):
            continue
        path = f"{above}{name}" + ("/" if is_folder else "")
        if path != unfinished.path:
            found.append(Completion(re.sub(r"([\\\s])", r"\\\1", path) if unfinished.escaped else path, path))
    return found
