"""`termchat models`: what is known, what is here, and bringing, checking or removing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import units
from .console import Console
from .errors import FAILED, OK
from .options import CommandGroup, complete_model, json_option

if TYPE_CHECKING:
    from pathlib import Path

    from ..registry import ModelStatus, Registry


@click.group(cls=CommandGroup)
def models() -> None:
    """List, download, show, check and remove models."""


def load_registry(console: Console) -> Registry:
    """The known models; what is wrong in their files is said on standard error."""
    from ..paths import Paths
    from ..registry import Registry

    registry = Registry.load(Paths.default())
    for warning in registry.warnings:
        console.messages.note(warning)
    return registry


@models.command("list")
@json_option
@click.pass_obj
def list_models(console: Console, as_json: bool) -> None:
    """List known models: name, size, licence, and whether they are on this machine."""
    found = load_registry(console).list_models()
    if as_json:
        console.print_json([status.as_dict() for status in found])
        return
    rows = [["NAME", "SIZE", "LICENCE", "STATE", "DESCRIPTION"]]
    rows += [
        [status.entry.name, _size(status), status.entry.licence, _state(status), status.entry.description]
        for status in found
    ]
    console.print_table(rows)


@models.command("pull")
@click.argument("name", shell_complete=complete_model)
@json_option
@click.pass_obj
def pull_model(console: Console, name: str, as_json: bool) -> None:
    """Download a model, or check one that is here; an interrupted download goes on where it stopped.

    A model that is damaged is brought again.
    """
    from .download import check, download, repair

    registry = load_registry(console)
    status = registry.show(name)
    if status.path is None:
        download(console, registry, status.entry)
    else:
        checked = check(console, registry, name)
        if checked.state == "damaged":
            console.messages.note(f"{name} is damaged: {checked.reason}; it is brought again")
            repair(console, registry, name)
        elif not as_json:
            console.output.write(f"{name} is here already, {checked.reason}: {status.path}\n")
    if as_json:
        console.print_json(registry.show(name).as_dict())


@models.command("show")
@click.argument("name", shell_complete=complete_model)
@json_option
@click.pass_obj
def show_model(console: Console, name: str, as_json: bool) -> None:
    """Show all that is known of a model."""
    status = load_registry(console).show(name)
    if as_json:
        console.print_json(status.as_dict())
        return
    sources = "; ".join(str(source) for source in status.entry.sources)
    known = {**status.as_dict(), "size": _size(status), "state": _state(status), "sources": sources}
    nothing: tuple[object, ...] = (None, "", {}, False, 0)
    console.print_table([[f"{key}:", str(value)] for key, value in known.items() if value not in nothing])


@models.command("rm")
@click.argument("name", shell_complete=complete_model)
@json_option
@click.pass_obj
def remove_model(console: Console, name: str, as_json: bool) -> None:
    """Delete a downloaded model from this machine; files of your own are never touched."""
    freed = load_registry(console).remove(name)
    if as_json:
        console.print_json({"name": name, "freed": freed})
    else:
        console.output.write(f"removed {name}, {units.size(freed)} are free again\n")


@models.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_model)
@json_option
@click.pass_obj
def verify_models(console: Console, names: tuple[str, ...], as_json: bool) -> int:
    """Check the files of models by their sha256; without a name all that are here.

    Exit code 1 if one is damaged.
    """
    from .download import check

    registry = load_registry(console)
    chosen = list(dict.fromkeys(names)) or [name for name in registry.entries if registry.has_file(name)]
    rows, found = [["NAME", "STATE", "REASON"]], []
    for name in chosen:
        checked = check(console, registry, name)
        mend = _mend(registry, name, checked.path) if checked.state == "damaged" else None
        found.append({"name": name, **checked._asdict(), "path": str(checked.path), "mend": mend})
        rows.append([name, checked.state, checked.reason + (f"; {mend}" if mend else "")])
    if as_json:
        console.print_json(found)
    elif found:
        console.print_table(rows)
    else:
        console.output.write("no model is on this machine\n")
    return FAILED if any(row["state"] == "damaged" for row in found) else OK


def _mend(registry: Registry, name: str, path: Path) -> str:
    if path != registry.target(registry.entry(name)):
        return "it is your own file: replace it, or correct models.toml"
    return f"run: termchat models pull {name}"


def _size(status: ModelStatus) -> str:
    size = status.as_dict()["size"]
    return units.size(size) if size is not None else ""


def _state(status: ModelStatus) -> str:
    state = "here" if status.path is not None else ""
    if status.path is None and status.partial:
        state = f"{units.size(status.partial)} downloaded"
    return " ".join(part for part in (state, "(default)" if status.default else "") if part)
