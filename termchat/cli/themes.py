"""`termchat themes`: the colour themes of the chat."""

from __future__ import annotations

import click

from .console import Console
from .options import CommandGroup, json_option


@click.group(cls=CommandGroup)
def themes() -> None:
    """List the colour themes of the chat."""


@themes.command("list")
@json_option
@click.pass_obj
def list_themes(console: Console, as_json: bool) -> None:
    """List built-in themes and your own; a file that cannot be used is named on standard error."""
    from ..paths import Paths, data_file
    from ..themes import load_themes

    own = Paths.default().themes
    found: dict[str, dict[str, str | bool]] = {}
    for source, folder in (("termchat", data_file("themes")), (str(own), own)):
        loaded, problems = load_themes([folder])
        found |= {
            name: {"name": name, "dark": theme.dark, "source": source} for name, theme in loaded.items()
        }
        for problem in problems:
            console.messages.note(problem)
    if as_json:
        console.print_json(list(found.values()))
        return
    rows = [["NAME", "BACKGROUND", "FROM"]]
    rows += [[name, "dark" if item["dark"] else "light", str(item["source"])] for name, item in found.items()]
    console.print_table(rows)
