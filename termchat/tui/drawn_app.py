"""How the application is drawn: in the colours of a theme, with nothing that could harm a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.color import ColorSystem
from rich.console import RenderableType
from textual import events
from textual._compositor import CompositorUpdate
from textual.filter import LineFilter, Monochrome, NoColor
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input, TextArea

from ..cells import ambiguous_cells, count_ambiguous
from ..config import Config
from ..errors import did_you_mean, shown
from ..terminals import has_all_colours
from ..themes import load_themes, marks, variable_defaults
from .glyphs import ASCII, UNICODE
from .terminal.ascii import Ascii
from .terminal.clipboard import Clipboard
from .terminal.driver import DrivenApp, TerminalDriver
from .terminal.frame import Frame
from .terminal.safe_text import SafeText

DEFAULT_THEME = "dusk"
TERMINAL_THEME = "terminal"
"""The default of a terminal with 16 colours."""
ROOM_SECONDS = 0.05
"""A terminal that takes nothing is asked again that often."""
ASCII_ONLY, SAFE_TEXT, NO_COLOUR = Ascii(), SafeText(), NoColor()


class DrawnApp(DrivenApp, inherit_bindings=False):
    """theme_warnings: a sentence for each theme file that cannot be used."""

    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]
    CSS = """
    .-ascii Prompt { border: ascii $primary 40%; }
    .-ascii Prompt:focus { border: ascii $primary; }
    Screen > .screen--selection { text-style: $selection-text-style; }
    OptionList > .option-list--option-highlighted { color: $block-cursor-blurred-foreground; }
    CommandPalette > Vertical { width: 84; max-width: 95%; background: transparent; }
    CommandPalette #--input, CommandPalette #--input.--list-visible {
        background: $surface; border: round $primary 60%; border-bottom: none; padding: 1 1 0 1;
    }
    CommandPalette.-low > Vertical { margin-top: 0; }
    CommandPalette.-low #--input, CommandPalette.-low #--input.--list-visible { padding: 0 1; }
    CommandPalette.-low CommandList, CommandPalette.-low CommandList:focus { padding: 0 1; max-height: 60vh; }
    CommandPalette #--input SearchIcon { display: none; }
    CommandPalette #--input CommandInput { background: $panel; border: none; height: 1; padding: 0 1; }
    CommandPalette CommandList, CommandPalette CommandList:focus {
        background: $surface; border: round $primary 60%; border-top: none; padding: 1 1 0 1;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self, config: Config, theme_folders: Sequence[Path]) -> None:
        no_color = os.environ.get("NO_COLOR")
        if no_color == "":  # as if it was not set (no-color.org)
            del os.environ["NO_COLOR"]
        super().__init__(driver_class=TerminalDriver)
        if has_all_colours(os.environ):
            self.console._color_system = ColorSystem.TRUECOLOR
        if no_color is not None:  # Textual takes it away; it is for the programs started from here, too
            os.environ["NO_COLOR"] = no_color
        self.config = config
        self._late: Timer | None = None  # frames were left out
        self.glyphs = ASCII if config.ascii else UNICODE
        self._themes, self.theme_warnings = load_themes(theme_folders)
        self.takes_mouse = bool(config.options["ui.mouse"])
        self.blinks = not config.options["ui.reduced_motion"]
        if not self.blinks:
            self.animation_level = "none"

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A cursor that blinks is motion, too."""
        if not self.blinks and isinstance(event.widget, (Input, TextArea)):
            event.widget.cursor_blink = False

    def on_cursor_position(self, event: events.CursorPosition) -> None:
        """The terminal's answer to `HOW_WIDE`."""
        if event.y == 1 and event.x in (1, 2) and event.x != ambiguous_cells():
            count_ambiguous(event.x)
            self.measure_anew()

    def measure_anew(self) -> None:
        """Texts take other cells than before: lay out everything again."""
        for screen in self.screen_stack:
            for widget in screen.walk_children(with_self=True):
                widget.notify_style_update()
                widget.refresh(layout=True)
                if isinstance(widget, TextArea):
                    widget._rewrap_and_refresh_virtual_size()

    def copy_to_clipboard(self, text: str) -> None:
        """Put a text where this program and others find it."""
        self._clipboard = text
        if isinstance(self._driver, TerminalDriver):
            self._driver.keep(text)
            self._keepers.keep(text)

    def redraw(self) -> None:
        """Draw everything anew, whatever has become of the terminal."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.begin_anew()
        self.screen._compositor._dirty_regions.add(self.screen.size.region)
        self.screen._compositor_refresh()

    @cached_property
    def _keepers(self) -> Clipboard:
        return Clipboard(os.environ)

    def choose_theme(self) -> list[str]:
        """Take the user's theme, else the default; a sentence if there is no such theme."""
        self.set_class(self.glyphs is ASCII, "-ascii")
        for theme in self._themes.values():
            self.register_theme(theme)
        wanted = self.config.options["ui.theme"]
        default = TERMINAL_THEME if self._few_colours else DEFAULT_THEME
        known = [name for name in (wanted, default) if name in self.theme_names]
        if known and isinstance(known[0], str):
            self.theme = known[0]
        if not isinstance(wanted, str) or wanted in known:
            return []
        meant = did_you_mean(wanted, self.theme_names)
        return [
            f"{self.config.file}: ui.theme: there is no theme {shown(wanted)}, {default} is used; {meant}"
        ]

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
        textuals = super().get_line_filters()  # its NO_COLOR leaves shades of grey, which are colours, too
        filters = [*(NO_COLOUR if isinstance(each, Monochrome) else each for each in textuals), SAFE_TEXT]
        return [*filters, ASCII_ONLY] if self.glyphs is ASCII else filters

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Draw a frame so that no text can damage what stands beside it.

        Frames that a slow terminal has no room for are left out: behind a queue of them no key would be seen
        to do anything. What there is then is drawn as soon as there is room.
        """
        if isinstance(renderable, CompositorUpdate):
            if self._terminal_is_behind:
                screen._compositor._dirty_regions.add(screen.size.region)
                self._late = self._late or self.set_interval(ROOM_SECONDS, self._draw_late)
                return
            renderable = Frame(renderable, screen._compositor)
        super()._display(screen, renderable)

    @property
    def _terminal_is_behind(self) -> bool:
        return isinstance(self._driver, TerminalDriver) and self._driver.behind

    def _draw_late(self) -> None:
        if self._late is not None and not self._terminal_is_behind:
            self._late.stop()
            self._late = None
            self.screen._compositor_refresh()
