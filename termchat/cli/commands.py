"""The commands there are, each imported when it is asked for: a prompt needs none of them."""

from __future__ import annotations

from importlib import import_module

import click

from .help import summary

PROMPT_COMMAND = "\0prompt"
"""Name of the command behind `termchat PROMPT`; no argument can be this."""

COMMANDS = {
    "models": "models",
    "history": "history",
    "batch": "batch.command",
    "bench": "bench.command",
    "quality": "quality",
    "plan": "plan",
    "doctor": "doctor.command",
    "themes": "themes",
    "config": "config",
    "completion": "completion",
}
"""Each with the module that has it, under its name."""


def command_of(name: str) -> click.Command:
    """The command of a name in COMMANDS, or the one behind PROMPT_COMMAND."""
    module, attribute = (COMMANDS[name], name) if name in COMMANDS else ("prompt", "prompt")
    command: click.Command = getattr(import_module(f".{module}", __package__), attribute)
    return command


def described() -> list[tuple[str, str]]:
    """Each command and what it does."""
    return [(name, summary(command_of(name))) for name in COMMANDS]
