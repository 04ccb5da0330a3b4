"""`termchat models`: what is known, what is here, and bringing or removing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..units import format_bytes
from .console import Console
from .options import CommandGroup, complete_model, json_option

if TYPE_CHECKING:
    from ..registry import ModelStatus, Registry


@click.group(cls=CommandGroup)
def models() -> None:
    """List, download, show and remove models."""


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
    """Download a model; an interrupted download goes on where it stopped."""
    from .pull import pull

    registry = load_registry(console)
    status = registry.show(name)
    if status.path is None:
        pull(console, registry, status.entry)
    elif not as_json:
        console.output.write(f"{name} is here already: {status.path}\n")
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
        console.output.write(f"removed {name}, {format_bytes(freed)} are free again\n")


def _size(status: ModelStatus) -> str:
    size = status.as_dict()["size"]
    return format_bytes(size) if size is not None else ""


def _state(status: ModelStatus) -> str:
    state = "here" if status.path is not None else ""
    if status.path is None and status.partial:
        state = f"{format_bytes(status.partial)} downloaded"
    return " ".join(part for part in (state, "(default)" if status.default else "") if part)
