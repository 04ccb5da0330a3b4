"""`termchat config`: where the settings are, and what they come to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import click

from engine import DRAFT_WORDS, template_names

from ..errors import did_you_mean, shown
from ..files import expanded
from ..given_file import is_read_once
from ..settings import ENGINE, OPTIONS, SAMPLING
from .console import Console, to_json
from .errors import CliError
from .option_types import Text
from .options import DRAFT_OPTIONS, ENGINE_OPTIONS, SAMPLING_OPTIONS, CommandGroup, json_option

_PATHS = ("model", "engine.draft_model", "engine.template")
"""Settings that may name a file."""


@click.group("config", cls=CommandGroup)
def config() -> None:
    """Show and change the settings, and where they are kept."""


@config.command("path")
@json_option
@click.pass_obj
def show_path(console: Console, as_json: bool) -> None:
    """Print the path of the settings file; with --json those of all files."""
    from ..paths import Paths

    paths = Paths.default()
    if not as_json:
        console.output.write(f"{paths.config_file}\n")
        return
    files = {
        "config": paths.config_file,
        "models": paths.registry_file,
        "themes": paths.themes,
        "database": paths.database,
        "downloads": paths.models,
        "log": paths.log_file,
    }
    console.print_json({name: str(path) for name, path in files.items()})


@config.command("show")
@json_option
@click.pass_obj
def show_settings(console: Console, as_json: bool) -> None:
    """Print every setting with its value, where that comes from, and what it is for."""
    from ..config import Config
    from ..paths import Paths
    from ..settings import help_of

    loaded = Config.load(Paths.default().config_file)
    for warning in loaded.warnings:
        console.messages.note(warning)
    settings = loaded.show()
    if as_json:
        console.print_json([{**setting._asdict(), "help": help_of(setting.key)} for setting in settings])
        return
    rows = [["SETTING", "VALUE", "FROM", "WHAT IT IS FOR"]]
    rows += [[key, to_json(value), source, help_of(key)] for key, value, source in settings]
    console.print_table(rows)


def complete_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Names of settings, for the shell."""
    from click.shell_completion import CompletionItem

    keys = [*OPTIONS, *(f"sampling.{name}" for name in SAMPLING), *(f"engine.{name}" for name in ENGINE)]
    return [CompletionItem(key) for key in keys if key.startswith(incomplete)]


@config.command("set")
@click.argument("key", shell_complete=complete_key)
@click.argument("values", type=Text(), nargs=-1, required=True, metavar="VALUE...")
@json_option
@click.pass_obj
def set_setting(console: Console, key: str, values: tuple[str, ...], as_json: bool) -> None:
    """Set one setting in the settings file; all else in it stays as it is.

    KEY is one of `termchat config show`, or keys.ACTION. Several values become a list (sampling.stop).
    """
    _write(console, key, _value(key, values), as_json)


@config.command("unset")
@click.argument("key", shell_complete=complete_key)
@json_option
@click.pass_obj
def unset_setting(console: Console, key: str, as_json: bool) -> None:
    """Take one setting out of the settings file, so that its default holds again."""
    _write(console, key, None, as_json)


def _write(console: Console, key: str, value: Any, as_json: bool) -> None:
    from ..config import Config, set_value
    from ..paths import Paths

    file = Paths.default().config_file
    if value is not None and (problem := _unknown(key, value)) is not None:
        raise CliError("usage", f"{key}: {problem}")
    set_value(file, key, _anchored(key, value))
    now = next((setting for setting in Config.load(file).show() if setting.key == key), None)
    if as_json:
        console.print_json({"key": key, "value": now and now.value, "source": now and now.source})
    else:
        state = "has its default again" if value is None else f"is {to_json(value)}"
        console.output.write(f"{key} {state}, by {file}\n")


def _anchored(key: str, value: Any) -> Any:
    """A file of the current folder with its whole path: the setting holds from everywhere. CliError: it is a
    pipe or the like, which the next start would not find.
    """
    if key not in _PATHS or not isinstance(value, str) or not value:
        return value
    path = expanded(value)
    if is_read_once(path):
        raise CliError("usage", f"{key}: {value} can be read only once; name a file that stays")
    if path.is_absolute() or not os.path.exists(path) or (os.sep not in value and value in _names(key)):
        return value
    return os.path.abspath(path)


def _unknown(key: str, value: Any) -> str | None:
    """What is wrong with a value that names something; None: it is there, or can come. What it would do to
    the next start is told now.
    """
    from ..paths import Paths, data_file

    if key.startswith("keys."):
        from ..tui.commands import COMMANDS
        from ..tui.keymap import problem_of

        return problem_of(key.removeprefix("keys."), str(value), COMMANDS)
    if key == "ui.theme":
        from ..themes import load_themes

        found, _ = load_themes([data_file("themes"), Paths.default().themes])
        return None if value in found else f"there is no theme {shown(value)}; {did_you_mean(value, found)}"
    return None


def _names(key: str) -> Iterable[str]:
    """What goes before files of the same name."""
    if key == "engine.template":
        return template_names()
    from ..paths import Paths
    from ..registry import Registry

    return [*DRAFT_WORDS, *Registry.load(Paths.default()).entries]


def _value(key: str, values: tuple[str, ...]) -> Any:
    """What is written for a key, as the option of the command line of that name takes it."""
    table, _, name = key.rpartition(".")
    forms = {"sampling": SAMPLING_OPTIONS, "engine": {**ENGINE_OPTIONS, **DRAFT_OPTIONS}}.get(table, {})
    form = forms.get(name, {})
    if form.get("multiple"):
        return list(values)
    if len(values) > 1:
        raise CliError("usage", f"{key} takes one value; put quotes around one with blanks")
    if key in OPTIONS or table == "keys" or not forms:
        is_flag = key in OPTIONS and isinstance(OPTIONS[key].default, bool)
        return {"true": True, "false": False}.get(values[0], values[0]) if is_flag else values[0]
    if "type" in form:
        try:
            return click.types.convert_type(form["type"]).convert(values[0], None, None)
        except click.UsageError as error:
            raise CliError("usage", f"{key}: {error.message}") from error
    return _plain(values[0])


def _plain(value: str) -> Any:
    """A whole number, true or false, else the text: settings that have no option."""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.removeprefix("-").isascii() and value.removeprefix("-").isdecimal() else value
