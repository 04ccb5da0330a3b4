"""The application: puts store, engine and screens together, paints first and loads afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingsMap
from textual.dom import DOMNode
from textual.filter import LineFilter, Monochrome, NoColor
from textual.screen import Screen
from textual.widgets import TextArea
from textual.worker import WorkerFailed

from ..config import Config
from ..errors import UserError
from ..paths import Paths, data_file
from ..peaks import Peaks
from ..themes import load_themes, marks, variable_defaults
from .command import CommandError
from .commands import COMMANDS
from .conversations.collection import Conversations
from .conversations.store_thread import StoreThread
from .conversations.streaming import Streaming
from .conversations.turns import Turns
from .engines.loader import Loader
from .engines.monitor import Monitor
from .engines.pool import EnginePool
from .glyphs import ASCII, UNICODE
from .keymap import Keys
from .palette import CommandProvider
from .screens.layout import Wanted
from .screens.main import MainScreen
from .screens.stats import StatsScreen
from .terminal.ascii import Ascii
from .terminal.driver import TerminalDriver
from .terminal.frame import Frame
from .terminal.safe_text import SafeText
from .terminal.typeahead import TypeAhead

if TYPE_CHECKING:
    from engine import EngineConfig, MemoryPlan

    from ..registry import Registry, ResolvedModel
    from .conversations.conversation import Conversation

log = logging.getLogger(__name__)

DEFAULT_THEME = "dusk"
TERMINAL_THEME = "terminal"
"""The default of a terminal with 16 colours."""
ASCII_ONLY, SAFE_TEXT, NO_COLOUR = Ascii(), SafeText(), NoColor()

SAVING_SECONDS = 2.0
"""So long a fault waits for what is still to be saved."""


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


class TermchatApp(App[None], inherit_bindings=False):
    """termchat on a terminal."""

    TITLE = "termchat"
    COMMANDS = {CommandProvider}
    CSS = """
    .-ascii Prompt { border: ascii $primary 40%; }
    .-ascii Prompt:focus { border: ascii $primary; }
    Screen > .screen--selection { text-style: $selection-text-style; }
    OptionList > .option-list--option-highlighted { color: $block-cursor-blurred-foreground; }
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
        no_color = os.environ.get("NO_COLOR")
        super().__init__(driver_class=TerminalDriver)
        if (
            no_color is not None
        ):  # Textual takes it away; it is for the programs that are started from here, too
            os.environ["NO_COLOR"] = no_color
        self.config = config
        self.options = options
        self.folder = _current_folder()
        self.glyphs = ASCII if config.options["ui.ascii"] else UNICODE
        self.keys = Keys(COMMANDS, config.keys)
        self._warnings = list(self.keys.warnings)
        self.set_keymap(self.keys.given)  # of the dialogs; the main screen's bindings are made of the keys
        self._bindings = BindingsMap(
            [
                *(Binding(key, "leave", priority=True, show=False) for key in self.keys.of("quit")),
                *(Binding(key, "pause", priority=True, show=False) for key in self.keys.of("suspend")),
                Binding("ctrl+underscore,ctrl+slash", "undo", show=False),
            ]
        )
        self._themes, problems = load_themes([data_file("themes"), paths.themes])
        self._warnings += [*config.warnings, *problems]
        if config.options["ui.reduced_motion"]:
            self.animation_level = "none"
        self._paths = paths
        self._main = MainScreen(self.keys)
        self.typeahead = TypeAhead(self, super().on_event, self._main.commands_act)
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

    @property
    def theme_names(self) -> list[str]:
        """The themes that can be chosen: the files', then Textual's."""
        return [*self._themes, *(name for name in self.available_themes if name not in self._themes)]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own variables for themes that do not set them."""
        return variable_defaults(self.current_theme)

    def get_css_variables(self) -> dict[str, str]:
        """Those of the theme, and how things are marked where its colours cannot be relied on."""
        variables = super().get_css_variables()
        few = self.current_theme.ansi or self._few_colours
        variables |= marks(variables, few=few, colours=not self.no_color)
        self.theme_variables = variables
        return variables

    @property
    def _few_colours(self) -> bool:
        """Whether the terminal has but 16 colours."""
        return not self.is_headless and self.console.color_system in (None, "standard")

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's, and ours for harmless text and a screen of ASCII."""
        filters = [*super().get_line_filters(), SAFE_TEXT]
        if self.current_theme.ansi:  # the shades of grey would be others than the terminal's own
            filters = [NO_COLOUR if isinstance(each, Monochrome) else each for each in filters]
        return [*filters, ASCII_ONLY] if self.glyphs is ASCII else filters

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Draw a frame so that no text can damage what stands beside it."""
        if isinstance(renderable, CompositorUpdate):
            renderable = Frame(renderable, screen._compositor)
        super()._display(screen, renderable)

    def on_mount(self) -> None:
        """Choose the theme, paint, then load."""
        self.set_class(self.glyphs is ASCII, "-ascii")
        for theme in self._themes.values():
            self.register_theme(theme)
        wanted = self.config.options["ui.theme"]
        if isinstance(wanted, str) and wanted not in self.theme_names:
            self._warnings.append(f"there is no theme {wanted!r}; the default is used")
            wanted = None
        default = TERMINAL_THEME if self._few_colours else DEFAULT_THEME
        names = [name for name in (wanted, default) if name in self.theme_names]
        if names and isinstance(names[0], str):
            self.theme = names[0]
        panel = self.config.options["ui.panel"]
        self._main.wanted = Wanted(panel=panel if isinstance(panel, str) else "full")
        self.conversations.shown = self.conversations.new()
        self.push_screen(self._main)
        self.call_after_refresh(self._start)

    async def on_event(self, event: events.Event) -> None:
        """Keep what is typed until it is its turn; also before there is a prompt."""
        if isinstance(event, (events.InputEvent, events.Paste)) and not event.is_forwarded:
            self.typeahead.add(event)
        else:
            await super().on_event(event)

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted in a dialog without a text goes to the prompt."""
        self._main.prompt.paste(event.text)

    async def _start(self) -> None:
        """After the first frame: look at what was typed before, open the store, load the engine."""
        self.typeahead.start()
        for warning in self._warnings:
            self._main.notify_user(warning)
        conversation: Conversation | None = None
        try:
            await self.store.open()
            if self.store.notice is not None:
                self._main.notify_user(self.store.notice, error=True)
            conversation = await self._conversations()
        except (UserError, OSError) as error:
            self._main.notify_user(str(error), error=True)
        if conversation is not None:
            await self._main.switch_to(conversation)
        else:
            self._main.conversation_changed(self._main.conversation)
        options = self.options
        first = conversation.model if conversation is not None and options.model is None else ""
        await self.engines.start(options.model, fetch=options.fetch, first=first)
        if conversation is not None and options.model is not None and self.engines.default.reference:
            await self.conversations.set_model(conversation, self.engines.default.reference)

    async def _conversations(self) -> Conversation | None:
        """Read the list and the prompts before; the conversation that was asked for. UserError."""
        options = self.options
        await self.conversations.load()
        await self._take_draft()
        earlier = await self.store.call(lambda store: store.prompts())
        self._main.prompt.earlier = earlier[::-1]
        stored = (conversation for conversation in self.conversations.all if conversation.id is not None)
        conversation = next(stored, None) if options.newest else None
        if options.conversation is not None:
            name = options.conversation
            conversation = self.conversations.find(name) or await self.conversations.add(
                lambda store: store.get_or_create(name)
            )
        if (
            conversation is not None
        ):  # as a one-shot goes on: settings hold for this run, the system prompt stays
            conversation.given = options.sampling
            if options.system:
                await self.conversations.set_system(conversation, options.system)
        return conversation

    def show_stats(self) -> None:
        """For the screen with the plots, if it is open."""
        if isinstance(self.screen, StatsScreen):
            self.screen.update(self.monitor.stats, self.monitor.timeline)

    def open_stats(self) -> None:
        """Open the screen with the plots."""
        self.push_screen(StatsScreen(self.glyphs))
        self.call_after_refresh(self.show_stats)

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
                self._main.give_back(conversation, self.turns.stop(conversation))
            self._main.keep_draft()
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
            fault = f"termchat has a fault: {type(error).__name__}: {error}"
            self._main.notify_user(f"{fault}; the log has the details", error=True)
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

    async def _take_draft(self) -> None:
        """Show a text that was typed in no conversation, if nothing is typed yet."""
        typed = next(
            (
                conversation
                for conversation in self.conversations.all
                if conversation.id is None and conversation.draft
            ),
            None,
        )
        shown = self._main.conversation
        if typed is not None and typed is not shown and shown.id is None and not self._main.prompt.text:
            await self._main.switch_to(typed)

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
