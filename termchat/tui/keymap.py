"""The keys: the defaults of the commands, and the user's own from the settings' [keys]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from textual.binding import Binding, BindingType

from ..settings import nearest
from .commands.registry import Command

NAMES = {
    "escape": "esc",
    "enter": "⏎",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "space": "space",
}


def bindings(commands: Iterable[Command]) -> list[BindingType]:
    """A binding for each command that has a key; its id is the command's."""
    return [
        Binding(
            command.key,
            f"command('{command.id}')",
            command.title,
            show=False,
            priority=command.priority,
            id=command.id,
        )
        for command in commands
        if command.key
    ]


def checked(keys: Mapping[str, str], commands: Iterable[Command]) -> tuple[dict[str, str], list[str]]:
    """The user's keys that name a command, and one sentence for each that does not."""
    known = [command.id for command in commands if command.key]
    good = {name: key for name, key in keys.items() if name in known}
    warnings = [
        f"[keys] {name}: there is no such action; did you mean {nearest(name, known)}?"
        for name in keys
        if name not in known
    ]
    return good, warnings


def shown(keys: str) -> str:
    """Keys as people read them: `ctrl+pageup` becomes `^pgup`."""
    return " ".join(_shown_one(key) for key in keys.split(",") if key)


def _shown_one(key: str) -> str:
    *modifiers, name = key.strip().split("+")
    name = NAMES.get(name, name)
    if len(name) > 1 and name[0] == "f" and name[1:].isdecimal():
        name = name.upper()
    prefix = "".join("^" if modifier == "ctrl" else f"{modifier}+" for modifier in modifiers)
    return prefix + (name.upper() if prefix == "^" and len(name) == 1 else name)
