"""The application: puts store, engine and screens together, paints first and loads afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingsMap
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Input, TextArea
from textual.worker import WorkerFailed

from ..config import Config
from ..errors import UserError, fault
from ..paths import Paths, data_file
from ..peaks import Peaks
from .background import in_background
from .command import CommandError
from .commands import COMMANDS
from .commands.stopping import stop_one
from .conversations.collection import Conversations
from .conversations.store_thread import StoreThread
from .conversations.streaming import Streaming
from .conversations.turns import Turns
from .drawn_app import DrawnApp
from .engines.loader import Loader
from .engines.monitor import Monitor
from .engines.pool import EnginePool
from .keymap import Keys
from .palette import CommandProvider
from .screens.layout import Wanted
from .screens.main import MainScreen
from .screens.stats import StatsScreen
from .start import Options, start
from .terminal.driver import TerminalDriver
from .terminal.typeahead import TypeAhead

if TYPE_CHECKING:
    from engine import EngineConfig, MemoryPlan

    from ..registry import Registry
    from ..resolved_model import ResolvedModel

log = logging.getLogger(__name__)

SAVING_SECONDS = 2.0
"""So long a fault waits for what is still to be saved."""


class TermchatApp(DrawnApp, inherit_bindings=False):
    """termchat on a terminal."""

    TITLE = "termchat"
    COMMANDS = {CommandProvider}

    def __init__(
        self,
        paths: Paths,
        config: Config,
        options: Options,
        *,
        read_registry: Callable[[], Registry] | None = None,
        engine_config: Callable[[ResolvedModel], EngineConfig] | None = None,
        plan: Callable[[EngineConfig], MemoryPlan] | None = None,
    ) -> None:
        """read_registry, engine_config, plan: for tests, instead of the user's."""
        super().__init__(config, [data_file("themes"), paths.themes])
        self.options = options
        self.folder = _current_folder()
        self.keys = Keys(COMMANDS, config.keys)
        self._warnings = [*self.keys.warnings, *config.warnings, *self.theme_warnings]
        self.set_keymap(self.keys.given)  # of the dialogs; the main screen's bindings are made of the keys
        self._bindings = BindingsMap(
            [
                *(Binding(key, "leave", priority=True, show=False) for key in self.keys.of("quit")),
                *(Binding(key, "pause", priority=True, show=False) for key in self.keys.of("suspend")),
                *(Binding(key, "redraw", priority=True, show=False) for key in self.keys.of("redraw")),
                Binding("ctrl+underscore,ctrl+slash", "undo", show=False),
            ]
        )
        self._paths = paths
        self._main = MainScreen(self.keys)
        self.typeahead = TypeAhead(self, super().on_event, self._main.commands.rest)
        self.fault: BaseException | None = None
        self.failing: Callable[[], object] = lambda: None  # called at a fault, by whoever sees to the end
        self.terminal_gone: Callable[[], object] = self.leave  # called when there is nothing more to read
        self.loader = Loader(
            config,
            read_registry or (lambda: _read_registry(paths)),
            options.engine,
            engine_config=engine_config,
            plan=plan,
        )
        self.engines = EnginePool(self.loader, self._main.poll)
        self.store = StoreThread(paths.database if options.save else None, self._failed)
        self.conversations = Conversations(
            self.store, self._main, system=options.system, params=options.sampling
        )
        self.streaming = Streaming(self.conversations, self.store, self._main)
        self.turns = Turns(self.engines, self.conversations, self.store, self.streaming, self._main)
        self.monitor = Monitor(
            self.engines, self.conversations, self.streaming, Peaks(paths.peaks), self._main.notify_user
        )

    @property
    def log_file(self) -> Path:
        """Where details of faults are."""
        return self._paths.log_file

    @property
    def folders_of_last_resort(self) -> tuple[Path, ...]:
        """Where what the store does not take may be written."""
        return self._paths.data, self._paths.state, Path(tempfile.gettempdir())

    def on_mount(self) -> None:
        """Choose the theme, paint, then load."""
        self._warnings += self.choose_theme()
        panel = self.config.options["ui.panel"]
        self._main.wanted = Wanted(panel=panel if isinstance(panel, str) else "full")
        self.conversations.shown = self.conversations.new()
        self.push_screen(self._main)
        self.call_after_refresh(self._start)

    async def _start(self) -> None:
        """After the first frame."""
        self.typeahead.start()
        await start(self._main, self.options, self._warnings)

    async def on_event(self, event: events.Event) -> None:
        """Keep what is typed until it is its turn; also before there is a prompt."""
        if isinstance(event, (events.InputEvent, events.Paste)) and not event.is_forwarded:
            self.typeahead.add(event)
        else:
            await super().on_event(event)

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted where no field takes it, as in a list, goes to the prompt."""
        if not isinstance(self.focused, (Input, TextArea)):
            self._main.prompt.paste(event.text)

    def measure_anew(self) -> None:
        """Texts take other cells than before: wrap the messages again, too."""
        super().measure_anew()
        self._main.view.forget_rows()
        if self.conversations.shown is not None:
            self._main.conversation_changed(self.conversations.shown)

    def show_stats(self) -> None:
        """For the screen with the plots, if it is open."""
        if isinstance(self.screen, StatsScreen):
            self.screen.update(self.monitor.stats, self.monitor.timeline)

    def open_stats(self) -> None:
        """Open the screen with the plots."""
        screen = StatsScreen(self.glyphs)
        self.push_screen(screen)
        self.call_after_refresh(self.show_stats)
        self._main.run_worker(self._show_roof(screen))

    async def _show_roof(self, screen: StatsScreen) -> None:
        """The roofline of the model on screen, once it is known. While something runs nothing is measured."""
        from engine import EngineError

        model, stats = self._main.slot.model, self.monitor.stats
        if model is None or stats is None:
            return
        try:
            screen.roof = await in_background(partial(self.loader.roof, model, measure=stats.idle))
        except (EngineError, UserError, OSError, ValueError) as error:
            log.info("there is no roofline: %s", error)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """None of Textual's own: ours have their place."""
        return ()

    async def close_turns(self) -> None:
        """Stop what runs, and save it, with what was typed and not sent."""
        self.typeahead.stop()
        if self.typeahead.started:
            self._hand_back()
        await self.turns.close()
        if self.typeahead.started:
            self.conversations.unsent.keep(self.conversations.all, last=True)
            self.conversations.saving.post_held()

    def _hand_back(self) -> None:
        """Put queued texts and the prompt's where they are kept. After a fault the screen may be broken."""
        try:
            for conversation in self.conversations.all:
                stop_one(self._main, conversation)
            self._main.drafts.keep()
        except Exception:
            if self.fault is None:
                raise
            log.exception("what was typed may not be kept")

    async def action_quit(self) -> None:
        """Stop and save what runs, then leave."""
        await self.close_turns()
        await self.engines.close()
        self.exit()

    def leave(self) -> None:
        """Begin to leave; from the event loop."""
        self._leaving = asyncio.ensure_future(self._leave())

    async def _leave(self) -> None:
        try:
            await self.action_quit()
        except Exception as error:
            self.fail(error)

    def action_leave(self) -> None:
        """Leave, wherever the keys are."""
        self.leave()

    def action_undo(self) -> None:
        """Take the last change of a text back: Ctrl+Z is the shell's."""
        if isinstance(self.focused, TextArea):
            self.focused.undo()

    def action_redraw(self) -> None:
        """Draw everything anew, wherever the keys are."""
        self.redraw()

    def action_pause(self) -> None:
        """Go to the shell, wherever the keys are."""
        try:
            self.pause()
        except CommandError as error:
            self._main.notify_user(str(error))

    def pause(self) -> None:
        """Give the terminal to the shell until it lets the program go on."""
        if not isinstance(self._driver, TerminalDriver):
            raise CommandError("this terminal cannot be given to a shell")
        self._driver.pause()

    # Faults

    async def _dispatch_action(self, namespace: DOMNode, action_name: str, params: Any) -> bool:
        """Carry out what a key is bound to; a fault in it is told, and is never the end of the program."""
        try:
            return await super()._dispatch_action(namespace, action_name, params)
        except Exception as error:
            log.exception("the action %s failed", action_name)
            self._main.notify_user(fault(error), error=True)
            return True

    def _handle_exception(self, error: Exception) -> None:
        """An exception that nobody has handled, in a handler, a timer or a worker."""
        self.fail(error.error if isinstance(error, WorkerFailed) else error)

    def fail(self, error: BaseException) -> None:
        """End the program by a fault: what can be saved is saved. From the event loop."""
        log.error("termchat failed", exc_info=error)
        self._return_code = 1
        if self._exception is None and isinstance(error, Exception):
            self._exception = error  # for a test that drives the application
            self._exception_event.set()
        if self.fault is None:
            self.fault = error
            self.failing()
            self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        """Save and stop, in a time that is not noticed."""
        try:
            async with asyncio.timeout(SAVING_SECONDS):
                await self.close_turns()
        except Exception:
            log.exception("not everything could be saved")
        self._close_messages_no_wait()

    def _failed(self, error: Exception) -> None:
        """The store could not do what nobody waits for; from its thread."""
        self.call_later(self.conversations.saving.failed, error)


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was removed
        return Path(os.sep)


def _read_registry(paths: Paths) -> Registry:
    from ..registry import Registry

    return Registry.load(paths)
