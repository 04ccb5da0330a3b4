"""What can be done, and with which keys: made of the registry of commands."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ..commands.registry import Command
from ..keymap import Keys
from .dialogs import Dialog

KEY_CELLS = 18

TYPING = (
    ("⏎", "send; while a reply comes: queue"),
    ("^J shift+⏎ alt+⏎", "new line"),
    ("↑ in first row", "earlier prompts"),
    ("@file", "attach a text file"),
    ("//text", "a message that begins with a slash"),
)


class HelpScreen(Dialog[None]):
    """All commands by group: keys, slash command, what it does."""

    BINDINGS = [
        Binding("q", "dismiss_none", "close", show=False),
        Binding("f1", "dismiss_none", "close", show=False, id="help"),  # the user's key for it, too
    ]
    DEFAULT_CSS = """
    HelpScreen .dialog { width: 96; height: 90%; }
    HelpScreen VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    HelpScreen Static { width: 1fr; height: auto; }
    """

    def __init__(self, commands: Sequence[Command], keys: Keys) -> None:
        super().__init__("Keys and commands")
        self._commands = commands
        self._keys = keys

    def content(self) -> ComposeResult:
        """One long text."""
        with VerticalScroll():
            yield Static("", markup=False)
        yield Static("esc close", classes="dialog-hint", markup=False)

    def on_mount(self) -> None:
        """Let the arrow keys scroll."""
        self.query_one(VerticalScroll).focus()

    def on_resize(self) -> None:
        """Lay the text out for the width there is."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        scroll = self.query_one(VerticalScroll)
        scroll.query_one(Static).update(self._manual(max(30, scroll.scrollable_content_region.width)))

    def _manual(self, width: int) -> Content:
        lines = [_heading("While typing")]
        copies = f"select text, {self._keys.hint('interrupt')} copies it; ▸ folds"
        for keys, title in (*TYPING, ("mouse", copies)):
            lines += _entry(keys, title, "", width)
        groups = dict.fromkeys(command.group for command in self._commands)
        for group in groups:
            lines.append(_heading(group))
            for command in self._commands:
                if command.group == group and (command.key or command.slash):
                    lines += _entry(self._keys.all(command.id), command.title, command.usage, width)
        lines.append(_heading("Your own keys"))
        lines.append(Content('In config.toml, table [keys], by id: "chat.new" = "ctrl+t". The ids:'))
        ids = ", ".join(command.id for command in self._commands if command.key)
        lines.append(Content.styled(ids, "$chat-muted"))
        return Content("\n").join(lines)


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
