"""`termchat config`: where the settings are, and what they come to."""

from __future__ import annotations

import click

from .console import Console, to_json
from .options import CommandGroup, json_option


@click.group("config", cls=CommandGroup)
def config() -> None:
    """Show the settings and where they are kept."""


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
