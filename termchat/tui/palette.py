"""The command palette: the registry's commands, to search."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from .command import Command
from .commands import COMMANDS
from .screens.main import MainScreen


class CommandProvider(Provider):
    """Commands by their titles."""

    async def discover(self) -> Hits:
        """All of them."""
        for command in COMMANDS:
            if command.palette and (run := self._run(command)) is not None:
                yield DiscoveryHit(_title(command), run, help=self._help(command))

    async def search(self, query: str) -> Hits:
        """Those that match."""
        matcher = self.matcher(query)
        for command in COMMANDS:
            title = _title(command)
            score = matcher.match(f"{title} /{command.slash}" if command.slash else title)
            if command.palette and score > 0 and (run := self._run(command)) is not None:
                yield Hit(score, matcher.highlight(title), run, help=self._help(command))

    def _run(self, command: Command) -> Callable[[], None] | None:
        screen = self.screen
        return partial(screen.commands.run, command) if isinstance(screen, MainScreen) else None

    def _help(self, command: Command) -> str:
        keys = self.screen.keys.all(command.id) if isinstance(self.screen, MainScreen) else ""
        parts = [keys, command.usage]
        return "   ".join(part for part in parts if part).replace("[", "\\[")  # it is read as markup


def _title(command: Command) -> str:
    return command.title[0].upper() + command.title[1:]
