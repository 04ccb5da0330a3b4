"""Carrying out commands: by a key, from the palette, by a typed line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ..errors import UserError, fault
from .command import Command, find
from .terminal.typeahead import LONGEST_SECONDS
from .ui import Ui

log = logging.getLogger(__name__)


class CommandRunner:
    """What goes wrong in a command is told, and is never the end of the program."""

    def __init__(self, ui: Ui, commands: Sequence[Command]) -> None:
        self._ui = ui
        self._commands = commands
        self._acting: set[object] = set()  # commands that keys typed later wait for
        self._acted = asyncio.Event()  # one of them has ended, or opened a dialog

    def run(self, command: Command, argument: str = "") -> None:
        """Carry out a command."""
        begun = object()

        async def run() -> None:
            try:
                await command.run(self._ui, argument)
            except (UserError, OSError, ValueError) as error:
                self._ui.notify_user(str(error), error=True)
            except Exception as error:
                log.exception("the command %s failed", command.id)
                self._ui.notify_user(f"{command.title}: {fault(error)}", error=True)
            finally:
                self._acting.discard(begun)
                self._acted.set()

        self._acting.add(begun)
        self._ui.run_worker(run())

    def run_id(self, id: str) -> None:
        """Carry out the command of this id."""
        self.run(next(command for command in self._commands if command.id == id))

    def run_line(self, line: str) -> None:
        """Carry out a typed command; one that means nothing stays where it was typed."""
        try:
            command, argument = find(self._commands, line)
        except UserError as error:
            stop = "" if str(error).endswith("?") else ";"
            self._ui.notify_user(f"{error}{stop} {self._ui.hint('help')} lists them all", error=True)
            return
        self._ui.prompt.load("")
        self._ui.drafts.keep()
        self.run(command, argument)

    def asks(self) -> None:
        """A dialog has opened."""
        self._acted.set()

    async def rest(self) -> None:
        """Wait until the commands are carried out or wait for an answer; not for one that takes long."""
        while self._acting and self._ui.app.screen is self._ui:
            self._acted.clear()
            try:
                await asyncio.wait_for(self._acted.wait(), LONGEST_SECONDS)
            except TimeoutError:
                self._acting.clear()
