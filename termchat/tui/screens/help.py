"""What can be done, and with which keys: made of the registry of commands."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ..commands.registry import Command
from ..keymap import Keys
from .dialogs import Dialog

TYPING = (
    ("⏎", "send; while a reply comes: queue"),
    ("^J shift+⏎ alt+⏎", "new line"),
    ("↑ at the first row", "earlier prompts"),
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
            yield Static(self._manual())
        yield Static("esc close", classes="dialog-hint", markup=False)

    def on_mount(self) -> None:
        """Let the arrow keys scroll."""
        self.query_one(VerticalScroll).focus()

    def _manual(self) -> Content:
        lines = [_heading("While typing")]
        lines += [_line(keys, "", title) for keys, title in TYPING]
        lines.append(_line("mouse", "", f"select text, {self._keys.hint('interrupt')} copies it; ▸ folds"))
        groups = dict.fromkeys(command.group for command in self._commands)
        for group in groups:
            lines.append(_heading(group))
            for command in self._commands:
                if command.group == group and (command.key or command.slash):
                    lines.append(_line(self._keys.all(command.id), command.usage, command.title))
        lines.append(_heading("Your own keys"))
        lines.append(Content('In config.toml, table [keys], by id: "chat.new" = "ctrl+t". The ids:'))
        lines.append(
            Content.styled(", ".join(command.id for command in self._commands if command.key), "$chat-muted")
        )
        return Content("\n").join(lines)


def _heading(text: str) -> Content:
    return Content.assemble("\n", (text, "bold $primary"))


def _line(keys: str, usage: str, title: str) -> Content:
    return Content.assemble((f"{keys:<17} ", "$accent"), (f"{usage:<31} ", ""), (title, "$chat-muted"))
