"""What can be done, and with which keys: made of the registry of commands."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ..command import Command
from ..glyphs import UNICODE, Glyphs
from ..keymap import Keys
from .dialogs import Dialog

KEY_CELLS = 18

PLACES = [f"chat.{number}" for number in range(1, 10)]
"""Commands that are alike, listed as one."""

TYPING = (
    ("enter", "send; while a reply comes: queue"),
    ("^J", "new line; also shift+enter and alt+enter"),
    ("↑ in first row", "earlier prompts"),
    ("@file", "attach a text file"),
    ("tab", "take what is offered for /… and @…; ↑ ↓ choose"),
    ("//text", "a message that begins with a slash"),
)


SIGNS = {
    "decode": "it streams",
    "prefill": "its prompt is read",
    "queued": "it waits",
    "interrupted": "it was stopped",
    "error": "it failed",
}
"""What the signs of conversations say, by state."""


class Manual(Static):
    """All commands by group: keys, what they do, how they are typed; laid out for the width there is."""

    DEFAULT_CSS = "Manual { width: 1fr; height: auto; }"

    def __init__(self, commands: Sequence[Command], keys: Keys, glyphs: Glyphs = UNICODE) -> None:
        super().__init__("", markup=False)
        self._glyphs = glyphs
        self._commands = commands
        self._keys = keys

    def on_resize(self, event: events.Resize) -> None:
        """Lay the text out anew."""
        self.update(self.text(max(KEY_CELLS + 10, self.content_size.width)))

    def text(self, width: int) -> Content:
        """The manual in rows of at most `width` cells."""
        lines = [_heading("While typing")]
        copies = f"select text, {self._keys.hint('interrupt')} copies it; ▸ folds"
        for keys, title in (*TYPING, ("mouse", copies)):
            lines += _entry(keys, title, "", width)
        groups = dict.fromkeys(command.group for command in self._commands)
        for group in groups:
            lines.append(_heading(group))
            for command in self._commands:
                if command.group == group and command.id not in PLACES:
                    lines += _entry(self._keys.all(command.id), command.title, command.usage, width)
            if group == "Conversations":
                first, last = (self._keys.all(PLACES[place]) for place in (0, -1))
                lines += _entry(f"{first} … {last}", "conversation 1 to 9 of the list", "", width)
        lines.append(_heading("Signs in the list"))
        signs = [*((self._glyphs.states[state], said) for state, said in SIGNS.items())]
        for sign, said in (*signs, (self._glyphs.unread, "it has something unread")):
            lines += _entry(sign, said, "", width)
        lines.append(_heading("Your own keys"))
        ids = ", ".join(command.id for command in self._commands)
        how = 'In config.toml, table [keys], by id: "chat.new" = "ctrl+t". The ids:'
        for text, style in ((how, ""), (ids, "$chat-muted")):
            lines += [Content.styled(row, style) for row in textwrap.wrap(text, width)]
        return Content("\n").join(lines)


class HelpScreen(Dialog[None]):
    """The manual, to scroll."""

    BINDINGS = [
        Binding("q", "dismiss_none", "close", show=False),
        Binding("f1", "dismiss_none", "close", show=False, id="help"),  # the user's key for it, too
    ]
    DEFAULT_CSS = """
    HelpScreen .dialog { width: 96; height: 90%; }
    HelpScreen VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    Manual { padding-right: 1; }
    """

    def __init__(self, commands: Sequence[Command], keys: Keys, glyphs: Glyphs = UNICODE) -> None:
        super().__init__("Keys and commands")
        self._manual = Manual(commands, keys, glyphs)

    def content(self) -> ComposeResult:
        """One long text."""
        with VerticalScroll():
            yield self._manual
        yield Static("esc close", classes="dialog-hint", markup=False)

    def on_mount(self) -> None:
        """Let the arrow keys scroll."""
        self.query_one(VerticalScroll).focus()


def _heading(text: str) -> Content:
    return Content.assemble("\n", (text, "bold $primary"))


def _entry(keys: str, title: str, usage: str, width: int) -> list[Content]:
    """Keys on the left, then what they do; how to type it on the right, or below if that is too narrow."""
    room = width - KEY_CELLS
    left = Content.styled(set_cell_size(keys, KEY_CELLS), "$accent")
    indent = " " * KEY_CELLS
    if cell_len(title) + cell_len(usage) + 2 <= room:
        gap = " " * (room - cell_len(title) - cell_len(usage))
        return [Content.assemble(left, title, gap, (usage, "$chat-muted"))]
    rows = textwrap.wrap(title, room)
    below = [Content(indent + row) for row in rows[1:]]
    if usage:
        below.append(Content.styled(indent + usage, "$chat-muted"))
    return [Content.assemble(left, rows[0]), *below]
