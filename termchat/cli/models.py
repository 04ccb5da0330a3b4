"""`termchat models`: what is known, what is here, and bringing, checking or removing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import units
from ..hub.name import PREFIX
from .console import Console
from .errors import FAILED, OK, CliError
from .models_quantize import quantize_model
from .options import CommandGroup, complete_model, json_option, option

if TYPE_CHECKING:
    from pathlib import Path

    from ..model_entry import ModelEntry
    from ..registry import Registry
    from ..resolved_model import ModelStatus


@click.group(cls=CommandGroup)
def models() -> None:
    """List, download, show, check, quantize and remove models."""


models.add_command(quantize_model)


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
@option("Model", "-y", "--yes", is_flag=True, help="Download a model of the Hub without asking.")
@json_option
@click.pass_obj
def pull_model(console: Console, name: str, yes: bool, as_json: bool) -> None:
    """Download a model, or check one that is here; an interrupted download goes on where it stopped.

    NAME is one of `termchat models list`, or hf:OWNER/REPOSITORY[:Q4_K_M|FILE|REVISION] for any model of the
    Hugging Face Hub: size and licence are shown before it comes. A model that is damaged is brought again.
    """
    from .download import check, download, repair

    registry = load_registry(console)
    status = _newest(console, registry, name) if name.startswith(PREFIX) else registry.show(name)
    if status.path is None:
        if name.startswith(PREFIX) and not yes:
            _agreed(console, status.entry)
        download(console, registry, status.entry)
    else:
        name = status.entry.name
        checked = check(console, registry, name)
        if checked.state == "damaged":
            console.messages.note(f"{name} is damaged: {checked.reason}; it is brought again")
            repair(console, registry, name)
        elif not as_json:
            console.output.write(f"{name} is here already, {checked.reason}: {status.path}\n")
    if as_json:
        console.print_json(registry.show(status.entry.name).as_dict())


def _newest(console: Console, registry: Registry, name: str) -> ModelStatus:
    """What a name of the Hub means now, there, and how much of it is here."""
    from ..download import DownloadError
    from .download import look_up

    try:
        return registry.status(look_up(console, registry, name))
    except DownloadError as error:
        status = registry.show(name)
        if status.path is None:
            raise
        console.messages.note(f"{name} cannot be looked up, so it is only checked: {error}")
        return status


def _agreed(console: Console, entry: ModelEntry) -> None:
    """Ask whether a model of the Hub is wanted. CliError: nobody is there, or it is not."""
    from .download import described

    if console.stdin_kind == "terminal" and console.messages.is_terminal:
        if console.ask(f"Download {described(entry)}?"):
            return
        raise CliError("model_not_downloaded", f"the model {entry.name} was not wanted")
    raise CliError("model_not_downloaded", f"{described(entry)} is not downloaded; add --yes to download it")


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
    from ..removal import remove

    freed = remove(load_registry(console), name)
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
