"""What a command is, and how a typed line finds one. The slash commands, the palette, the keys and the help
are all made of one list of these.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ..errors import UserError, did_you_mean
from ..habits import of_chat
from .ui import Ui

MEANT = 3
"""Commands that are named to whoever typed only how they begin."""

Group = Literal["Conversations", "Replies", "Messages", "Typing", "Model", "View"]


class CommandError(UserError):
    """A typed command that means nothing."""


def number(slash: str, argument: str, least: int, most: int) -> int:
    """The number behind a command. CommandError: it is none from least to most."""
    digits = argument.lstrip("0") or "0"
    if argument.isdecimal() and len(digits) <= len(str(most)) and least <= int(digits) <= most:
        return int(digits)
    raise CommandError(f"/{slash} takes a number from {least} to {most}, not {argument[:40]!r}")


@dataclass(frozen=True, slots=True)
class Command:
    """Something the user can do.

    id: stable, for the settings' [keys]. run: gets the interface and what follows the command's name.
    title: one line for palette and help. slash: its name after `/`; "" has none. argument: what may follow,
    for the help. key: default keys, separated by commas. palette: whether the palette lists it. named: what
    the argument may be besides the words that stand in it in small letters.
    """

    id: str
    run: Callable[[Ui, str], Awaitable[None]]
    title: str
    group: Group
    slash: str = ""
    argument: str = ""
    key: str = ""
    palette: bool = True
    named: Callable[[Ui], Iterable[str]] = lambda ui: ()

    @property
    def usage(self) -> str:
        """How to type it."""
        return f"/{self.slash} {self.argument}".rstrip() if self.slash else ""

    def choices(self, ui: Ui) -> list[str]:
        """What may follow, as far as that is one of a few words."""
        words = re.split(r"[\[\]| ]+", self.argument)
        return [*self.named(ui), *(word for word in words if word.islower())]


def find(commands: Iterable[Command], line: str) -> tuple[Command, str]:
    """The command of a typed line, and its argument. CommandError: there is none, or it takes no argument."""
    name, _, argument = line[1:].strip().partition(" ")
    known = {command.slash: command for command in commands if command.slash}
    if name.lower() in known:
        command, argument = known[name.lower()], argument.strip()
        if argument and not command.argument:
            raise CommandError(f"/{name.lower()} takes nothing behind it, not {argument[:40]!r}")
        return command, argument
    meant = _meant(name.lower(), known)
    said = f"there is no command /{name[:40]} (// begins a message with a slash)"
    raise CommandError(said + (f"; {meant}" if meant else ""))


def _meant(name: str, known: Iterable[str]) -> str:
    """Which command a name nobody knows may stand for: another program's, an abbreviation, a slip."""
    if (habit := of_chat(name)) is not None:
        begun = [habit]
    else:
        begun = [slash for slash in known if name and slash.startswith(name)][:MEANT]
    if begun:
        return f"did you mean {' or '.join(f'/{slash}' for slash in begun)}?"
    return did_you_mean(name, known, "/{}", like=0.5)
