"""The keys: the defaults of the commands, and the user's own from the settings' [keys]."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from textual.binding import Binding
from textual.keys import Keys as Known
from textual.keys import _character_to_key, key_to_character

from ..errors import did_you_mean
from .command import Command
from .terminal.reports import CONTROLS, typed
from .terminal.reports import keys as keys_of

NAMES = {
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "underscore": "_",
    "slash": "/",
}
MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")

_KNOWN = {key.value.rpartition("+")[2] for key in Known} | {"delete", "insert", "space", "enter", "tab"}
_SHORT = ("slash", "backslash", "at", "minus", "plus", "underscore")
_FUNCTION_KEY = re.compile(r"f\d\d?")


class Keys:
    """The keys of the commands as they are: the user's over the defaults. warnings: one sentence for each of
    the user's that cannot be, and for each command that has lost its key to another.
    """

    def __init__(self, commands: Iterable[Command], given: Mapping[str, str]) -> None:
        """given: the user's, by command id, several separated by commas."""
        self._commands = {command.id: command for command in commands}
        self.warnings: list[str] = []
        self.given = {id: keys for id, text in given.items() if (keys := self._checked(id, text)) is not None}
        self._keys = {
            id: self.given.get(id, command.key).split(",") if self.given.get(id, command.key) else []
            for id, command in self._commands.items()
        }
        self._settle()

    def of(self, id: str) -> list[str]:
        """The keys of a command, by their names."""
        return self._keys[id]

    def all(self, id: str) -> str:
        """All keys of a command, as people read them; "" if it has none."""
        return shown(",".join(self._keys[id]))

    def hint(self, id: str) -> str:
        """How to carry out a command: its first key, else how it is typed."""
        return self.all(id).partition(" ")[0] or self._commands[id].usage.partition(" ")[0]

    def bindings(self) -> list[Binding]:
        """A binding for each key.

        They go before those of the widget that has the focus, so that a command's key is the command's
        wherever one is. They have no id: the keys are resolved here.
        """
        return [
            Binding(key, f"command('{id}', '{key}')", self._commands[id].title, show=False, priority=True)
            for id, keys in self._keys.items()
            for key in keys
        ]

    def _checked(self, id: str, text: str) -> str | None:
        """The user's keys for a command by their names, None if there is no such command or key."""
        if id not in self._commands:
            self.warnings.append(
                f"[keys] {id}: there is no such action; {did_you_mean(id, self._commands, '{}')}"
            )
            return None
        names = []
        for key in filter(None, (part.strip() for part in re.split(r",(?!$)", text))):
            name = _named(key)
            if name is None:
                self.warnings.append(f"[keys] {id}: there is no key {key[:40]!r}")
            elif "+" not in name and _types(name) and not on_message(id):
                self.warnings.append(
                    f"[keys] {id}: {key} is needed for typing; take another with ctrl+ or alt+, or F1 to F12"
                )
            else:
                names.append(name)
                if (sent := _sent_as(name)) != name:
                    self.warnings.append(f"[keys] {id}: for {key} most terminals send {shown(sent)}")
        return ",".join(names) if names or not text.strip() else None

    def _settle(self) -> None:
        """Leave each key to one command: the user's before the defaults, else the first."""
        taken: dict[tuple[str, bool], str] = {}
        for id in sorted(self._keys, key=lambda id: id not in self.given):
            lost = []
            for key in self._keys[id]:
                owner = taken.setdefault((key, on_message(id)), id)
                if owner != id:
                    lost.append((key, owner))
            before = self._keys[id]
            self._keys[id] = [key for key in before if key not in dict(lost)]
            for key, owner in lost:
                if id in self.given or key == before[0]:
                    rest = f"{id} has {self.all(id)}" if self._keys[id] else f"{id} has no key now"
                    self.warnings.append(f"[keys] {shown(key)} is the key of {owner}; {rest}")


def problem_of(id: str, text: str, commands: Iterable[Command]) -> str | None:
    """Why these cannot be a command's keys; None: they can."""
    keys = Keys(commands, {id: text})
    return None if id in keys.given else keys.warnings[0].removeprefix(f"[keys] {id}: ")


def shown(keys: str) -> str:
    """Keys as people read them: `ctrl+pageup` becomes `^pgup`."""
    return " ".join(_shown_one(key) for key in keys.split(",") if key)


def _shown_one(key: str) -> str:
    *modifiers, name = key.strip().split("+")
    name = NAMES.get(name, name)
    if _FUNCTION_KEY.fullmatch(name):
        name = name.upper()
    prefix = "".join("^" if modifier == "ctrl" else f"{modifier}+" for modifier in modifiers)
    return prefix + (name.upper() if prefix == "^" and len(name) == 1 else name)


def _named(key: str) -> str | None:
    """A key as the terminal's reports name it; None if there is none of that name."""
    *modifiers, name = key.split("+")
    if not name and key.endswith("+"):  # the key is + itself
        modifiers, name = [part for part in modifiers if part], "+"
    modifiers = sorted(modifier.lower() for modifier in modifiers)
    if len(name) == 1:
        name = _character_to_key(name.lower() if modifiers else name)
    else:
        name = name.lower()
        if name not in _KNOWN and not _FUNCTION_KEY.fullmatch(name) and not _is_sign(name):
            return None
    if any(modifier not in MODIFIERS for modifier in modifiers):
        return None
    if modifiers == ["ctrl"] and (control := CONTROLS.get(key_to_character(name) or "")):
        return next(each.key for each in typed(control))
    return "+".join([*modifiers, name])


def _sent_as(name: str) -> str:
    """The key that a terminal without reports of its own makes of alt and a letter."""
    alt, _, letter = name.partition("+")
    known = keys_of(f"\x1b{letter}") if alt == "alt" and len(letter) == 1 else ()
    return next((key.key for key in known), name)


def _is_sign(name: str) -> bool:
    """Whether a name such as `question_mark` is that of a character."""
    return name in _SHORT or key_to_character(name) is not None


def _types(name: str) -> bool:
    """Whether a key without a modifier gives a character or edits the text."""
    return len(name) == 1 or _is_sign(name) or name in ("space", "enter", "backspace")


def on_message(id: str) -> bool:
    """Whether a command's keys hold only while they are at a message."""
    return id.startswith("message.") and id not in ("message.previous", "message.next")
