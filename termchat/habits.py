"""Words that people know from other programs, and what they are called here."""

from __future__ import annotations

from collections.abc import Container

_VERBS = {
    "delete": "rm",
    "download": "pull",
    "fetch": "pull",
    "get": "pull",
    "info": "show",
    "inspect": "show",
    "ls": "list",
    "remove": "rm",
}

_PROGRAM = {
    "chat": "termchat -m NAME",
    "help": "termchat --help",
    "run": "termchat -m NAME",
    "settings": "termchat config show",
    "version": "termchat --version",
} | {verb: f"termchat models {_VERBS.get(verb, verb)}" for verb in ("list", "pull", "rm", "show", *_VERBS)}

_SLASH = {
    "?": "help",
    "bye": "quit",
    "clear": "new",
    "config": "set",
    "exit": "quit",
    "fork": "branch",
    "load": "import",
    "models": "model",
    "q": "quit",
    "rename": "title",
    "reset": "new",
    "retry": "regen",
    "save": "export",
    "settings": "set",
    "usage": "stats",
}

_LEAVE = (":q", ":q!", ":wq", "bye", "exit", "logout", "quit")


def of_group(word: str, commands: Container[str]) -> str | None:
    """Which of a group's commands that word may stand for."""
    verb = _VERBS.get(word)
    return verb if verb in commands else None


def of_program(word: str) -> str | None:
    """What to type instead of `termchat WORD`."""
    return _PROGRAM.get(word)


def of_chat(slash: str) -> str | None:
    """Which command of a chat `/slash` may stand for."""
    return _SLASH.get(slash)


def leaves(text: str) -> bool:
    """Whether other programs would end by this text alone."""
    return text.strip().lower() in _LEAVE
