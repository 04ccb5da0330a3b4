"""The application: puts store, engine and screens together, paints first and loads afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import termios
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App, SystemCommand
from textual.filter import LineFilter
from textual.screen import Screen

from .. import collector
from ..config import Config
from ..errors import UserError
from ..paths import Paths, data_file
from ..themes import load_themes, variable_defaults
from ..widgets.plain import Plain
from . import drafts
from .bridge import EngineBridge
from .chats import Chats
from .commands import COMMANDS
from .engines import Engines
from .glyphs import ASCII, UNICODE
from .history import History
from .keymap import Keys, checked, know_alt
from .loader import Loader
from .monitor import Monitor
from .palette import CommandProvider
from .relay import Relay
from .screens.layout import Wanted
from .screens.main import MainScreen
from .screens.stats import StatsScreen
from .turns import Turns

if TYPE_CHECKING:
    from engine import EngineConfig, MemoryPlan

    from ..registry import Registry, ResolvedModel

log = logging.getLogger(__name__)

DEFAULT_THEME = "dusk"
PLAIN = Plain()

SWITCH_SECONDS = 0.0005
"""So long the engine's thread waits for the interpreter while the interface computes, after each step: the
interpreter's usual 5 ms are as long as a step.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for. sampling, engine: only what was given. fetch: an absent model."""

    model: str | None = None
    fetch: bool = False
    system: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    save: bool = True
    newest: bool = False
    conversation: str | None = None


class TermchatApp(App[None]):
    """termchat on a terminal."""

    TITLE = "termchat"
    COMMANDS = {CommandProvider}
    CSS = """
    .-ascii Prompt { border: ascii $primary 40%; }
    .-ascii Prompt:focus { border: ascii $primary; }
    CommandPalette > Vertical { width: 84; max-width: 95%; background: transparent; }
    CommandPalette #--input, CommandPalette #--input.--list-visible {
        background: $surface; border: round $primary 60%; border-bottom: none; padding: 1 1 0 1;
    }
    CommandPalette #--input SearchIcon { display: none; }
    CommandPalette #--input CommandInput { background: $panel; border: none; height: 1; padding: 0 1; }
    CommandPalette CommandList, CommandPalette CommandList:focus {
        background: $surface; border: round $primary 60%; border-top: none; padding: 1 1 0 1;
        scrollbar-size-vertical: 1;
    }
    """

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
        super().__init__()
        self.config = config
        self.options = options
        self.folder = Path.cwd()
        self.glyphs = ASCII if config.options["ui.ascii"] else UNICODE
        given, self._warnings = checked(config.keys, COMMANDS)
        self.keys = Keys(COMMANDS, given)
        self.set_keymap(given)
        self._themes, problems = load_themes([data_file("themes"), paths.themes])
        self._warnings += [*config.warnings, *problems]
        if config.options["ui.reduced_motion"]:
            self.animation_level = "none"
        self._paths = paths
        self._early: list[events.Event] | None = []
        self._main = MainScreen()
        self.loader = Loader(
            config,
            read_registry or (lambda: _read_registry(paths)),
            options.engine,
            engine_config=engine_config,
            plan=plan,
        )
        self.engines = Engines(self.loader, self._main.poll)
        self.history = History(paths.database if options.save else None, self._tell)
        self.chats = Chats(self.history, self._main, system=options.system, params=options.sampling)
        self.relay = Relay(self.chats, self.history, self._main)
        self.turns = Turns(self.engines, self.chats, self.history, self.relay, self._main)
        self.monitor = Monitor(self.engines, self.chats, self.relay)

    @property
    def theme_names(self) -> list[str]:
        """The themes that can be chosen: the files', then Textual's."""
        return [*self._themes, *(name for name in self.available_themes if name not in self._themes)]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own variables for themes that do not set them."""
        return variable_defaults(self.current_theme)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's, and ours for a screen of ASCII."""
        filters = super().get_line_filters()
        return [*filters, PLAIN] if self.glyphs is ASCII else filters

    def on_mount(self) -> None:
        """Choose the theme, paint, then load."""
        self.set_class(self.glyphs is ASCII, "-ascii")
        for theme in self._themes.values():
            self.register_theme(theme)
        wanted = self.config.options["ui.theme"]
        if isinstance(wanted, str) and wanted not in self.theme_names:
            self._warnings.append(f"there is no theme {wanted!r}; {DEFAULT_THEME} is used")
            wanted = None
        names = [name for name in (wanted, DEFAULT_THEME) if name in self.theme_names]
        if names and isinstance(names[0], str):
            self.theme = names[0]
        panel = self.config.options["ui.panel"]
        self._main.wanted = Wanted(panel=panel if isinstance(panel, str) else "full")
        self.chats.shown = self.chats.new()
        self.push_screen(self._main)
        self.call_after_refresh(self._start)

    async def on_event(self, event: events.Event) -> None:
        """Keep what is typed before there is a prompt."""
        if self._early is not None and isinstance(event, (events.Key, events.Paste)):
            self._early.append(event)
        else:
            await super().on_event(event)

    async def _start(self) -> None:
        """After the first frame: take in what was typed before, open the store, load the engine."""
        options = self.options
        early, self._early = self._early or (), None
        for event in early:
            await self.on_event(event)
        for warning in self._warnings:
            self._main.notify_user(warning)
        await self.history.open()
        if self.history.notice is not None:
            self._main.notify_user(self.history.notice, error=True)
        await self.chats.load()
        if options.save:
            drafts.restore(self._paths.drafts, self.chats.all)
        if not self._main.prompt.text:
            self._main.prompt.load(self._main.chat.draft)
        earlier = await self.history.call(lambda store: store.prompts())
        self._main.prompt.earlier = earlier[::-1]
        stored = (chat for chat in self.chats.all if chat.id is not None)
        chat = next(stored, None) if options.newest else None
        if options.conversation is not None:
            name = options.conversation
            chat = self.chats.find(name)
            if chat is None:
                chat = await self.chats.add(lambda store: store.get_or_create(name, system=options.system))
        if chat is not None:
            await self._main.switch_to(chat)
        else:
            self._main.chat_changed(self._main.chat)
        first = chat.model if chat is not None and options.model is None else ""
        await self.engines.start(options.model, fetch=options.fetch, first=first)
        if chat is not None and options.model is not None and self.engines.default.reference:
            await self.chats.set_model(chat, self.engines.default.reference)

    def show_stats(self) -> None:
        """For the screen with the plots, if it is open."""
        if isinstance(self.screen, StatsScreen):
            self.screen.update(self.monitor.stats, self.monitor.history)

    def open_stats(self) -> None:
        """Open the screen with the plots."""
        self.push_screen(StatsScreen(self.glyphs))
        self.call_after_refresh(self.show_stats)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """None of Textual's own: ours have their place."""
        return ()

    async def close_turns(self) -> None:
        """Stop what runs, and save it, with what was typed and not sent."""
        if self._early is None:
            for chat in self.chats.all:
                self._main.give_back(chat, self.turns.stop(chat))
            self._main.keep_draft()
        await self.turns.close()
        if self._early is None and self.options.save:
            drafts.keep(self._paths.drafts, self.chats.all)

    async def action_quit(self) -> None:
        """Stop and save what runs, then leave."""
        await self.close_turns()
        await self.engines.close()
        self.exit()

    def leave(self) -> None:
        """Begin to leave; from the event loop."""
        self._leaving = asyncio.ensure_future(self.action_quit())

    def _tell(self, text: str) -> None:
        """A sentence from another thread."""
        self.call_later(self._main.notify_user, text, error=True)


def _read_registry(paths: Paths) -> Registry:
    from ..registry import Registry

    return Registry.load(paths)


def _terminal_is_there() -> bool:
    try:
        termios.tcgetattr(sys.__stdin__.fileno() if sys.__stdin__ is not None else 0)
    except termios.error:
        return False
    return True


def run(
    app: TermchatApp,
    on_signal: Callable[[Callable[[], object]], AbstractContextManager[None]],
    exit_code: Callable[[], int],
) -> int:
    """Run the interface until the user leaves; the exit code.

    on_signal: within its block the first signal calls what it is given. exit_code: asked at the end.
    """

    async def vanish() -> None:
        with app.batch_update():
            await app.close_turns()
        app.history.close()
        os._exit(exit_code())

    def leave() -> None:
        if _terminal_is_there():
            app.leave()
        else:  # what is still drawn on it would block the program for ever
            app.run_worker(vanish())

    async def main() -> None:
        loop = asyncio.get_running_loop()
        settled = asyncio.create_task(_keep_what_is_loaded(app.engines.default))
        with on_signal(lambda: loop.call_soon_threadsafe(leave)):
            await app.run_async()
        settled.cancel()
        app.history.close()
        if app.engines.loading:  # a load cannot be stopped half-way, and nothing is left to be saved
            sys.stdout.flush()
            os._exit(exit_code())

    know_alt()
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.run(main())
    return exit_code()


async def _keep_what_is_loaded(bridge: EngineBridge) -> None:
    """Take everything that start-up made out of the collector's rounds: each would stop engine and screen."""
    with suppress(UserError):
        await bridge.ready()
    collector.keep()
