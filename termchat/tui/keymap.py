"""The keys: the defaults of the commands, and the user's own from the settings' [keys]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.binding import Binding, BindingType

from ..settings import nearest
from .command import Command

NAMES = {
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
}


def know_alt() -> None:
    """Let alt with a digit, or with enter, be that key.

    Most terminals send it as escape and the key. Textual takes that for what macOS would have typed, such as
    `¡`, or for two keys.
    """
    keys = {"\r": "enter", **{str(digit): str(digit) for digit in range(10)}}
    for sent, name in keys.items():
        ANSI_SEQUENCES_KEYS[f"\x1b{sent}"] = (SimpleNamespace(value=f"alt+{name}"),)  # type: ignore[index]


def bindings(commands: Iterable[Command]) -> list[BindingType]:
    """A binding for each command that has a key; its id is the command's.

    They go before those of the widget that has the focus: a key on its way through the widgets would be
    overtaken by what is typed next.
    """
    return [
        Binding(
            command.key,
            f"command('{command.id}')",
            command.title,
            show=False,
            priority=True,
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


class Keys:
    """The keys of the commands as they are now: the user's over the defaults."""

    def __init__(self, commands: Iterable[Command], given: Mapping[str, str]) -> None:
        """given: the user's, by command id."""
        self._commands = {command.id: command for command in commands}
        self._given = given

    def all(self, id: str) -> str:
        """All keys of a command, as people read them; "" if it has none."""
        return shown(self._given.get(id, self._commands[id].key))

    def hint(self, id: str) -> str:
        """How to carry out a command: its first key, else how it is typed."""
        return self.all(id).partition(" ")[0] or self._commands[id].usage.partition(" ")[0]


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
