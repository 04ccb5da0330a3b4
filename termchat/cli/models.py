"""`termchat models`: what is known, what is here, and bringing, checking or removing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import units
from ..hub import PREFIX
from ..hub.name import HubName
from ..model_entry import HuggingFaceSource
from . import model_facts
from .console import Console
from .download import check, described, download, load_registry, look_up, repair
from .errors import FAILED, OK, CliError
from .models_quantize import quantize_model
from .options import CommandGroup, complete_model, json_option, option

if TYPE_CHECKING:
    from pathlib import Path

    from ..elsewhere.found import Found
    from ..model_entry import ModelEntry
    from ..registry import Registry
    from ..resolved_model import ModelStatus


@click.group(cls=CommandGroup)
def models() -> None:
    """List, download, show, add, check, quantize and remove models."""


@models.command("list")
@option("Output", "--all", "everything", is_flag=True, help="Models of other programs on this machine too.")
@json_option
@click.pass_obj
def list_models(console: Console, everything: bool, as_json: bool) -> None:
    """List known models: name, size, licence, and whether they are on this machine.

    With --all those that Hugging Face, LM Studio, Ollama and llama.cpp have brought here, too, and whether
    they can be loaded, as far as the heads of their files say. They are used where they lie.
    """
    registry = load_registry(console)
    if not everything:
        found = registry.list_models()
        if as_json:
            console.print_json([status.as_dict() for status in found])
        else:
            heads = ["NAME", "SIZE", "LICENCE", "STATE", "DESCRIPTION"]
            console.print_table([heads, *map(model_facts.plain, found)])
        return
    models = list(model_facts.listed(registry))
    if as_json:
        console.print_json(models)
    else:
        heads = ["NAME", "FROM", "SIZE", "FORMAT", "CONTEXT", "STATE", "PATH"]
        console.print_table([heads, *map(model_facts.columns, models)])


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
    registry = load_registry(console)
    name = registry.followed(name)
    status = _newest(console, registry, name) if name.startswith(PREFIX) else registry.show(name)
    if status.path is None:
        if (found := _in_cache(status.entry)) is not None:
            console.messages.note(f"{found.name} is here already, used where it lies: {found.path}")
            if as_json:
                console.print_json(model_facts.of_found(found))
            return
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


def _in_cache(entry: ModelEntry) -> Found | None:
    """The model as the Hub's own cache has it, of the same commit."""
    source = entry.sources[0]
    if not isinstance(source, HuggingFaceSource) or not entry.name.startswith(PREFIX):
        return None
    from ..elsewhere.hub_cache import in_cache

    found = in_cache(HubName.parse(entry.name)._replace(revision=source.revision))
    return found if found is not None and not found.problem else None


def _newest(console: Console, registry: Registry, name: str) -> ModelStatus:
    """What a name of the Hub means now, there, and how much of it is here."""
    from ..download import DownloadError

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
    if console.can_ask:
        if console.ask(f"Download {described(entry)}?"):
            return
        raise CliError("model_not_downloaded", f"the model {entry.name} was not wanted")
    raise CliError("model_not_downloaded", f"{described(entry)} is not downloaded; add --yes to download it")


@models.command("show")
@click.argument("name", metavar="NAME|PATH", shell_complete=complete_model)
@json_option
@click.pass_obj
def show_model(console: Console, name: str, as_json: bool) -> None:
    """Show all that is known of a model: what it is, where it comes from, how it thinks, its settings.

    NAME may be one of another program's too (termchat models list --all), a file or a folder.
    """
    facts = model_facts.shown(load_registry(console), name)
    if as_json:
        console.print_json(facts)
        return
    console.print_table(model_facts.rows(facts))


@models.command("add")
@click.argument("name")
@click.argument("place", metavar="PATH|hf:OWNER/REPOSITORY[:WHICH]", shell_complete=complete_model)
@option(
    "Model", "--force", is_flag=True, help="Replace a model of that name; take a file that cannot be loaded."
)
@json_option
@click.pass_obj
def add_model(console: Console, name: str, place: str, force: bool, as_json: bool) -> None:
    """Give a model a name of your own, in your models.toml.

    It is a file, a folder, a model of the Hub or one of another program (termchat models list --all).

    Of a model of the Hub its commit and sha256 are written down as they are now; it is not downloaded yet.
    """
    from ..paths import Paths
    from ..registry import Registry
    from ..registry_edit import add_entry, check_name

    registry, file = load_registry(console), Paths.default().registry_file
    check_name(name, registry.entries, force=force)
    add_entry(file, name, _table(console, registry, place, force=force))
    added = Registry.load(Paths.default()).show(name)
    if as_json:
        console.print_json(added.as_dict())
    else:
        console.output.write(f"{name} is {added.entry.sources[0]}, by {file}\n")


def _table(console: Console, registry: Registry, place: str, *, force: bool) -> dict[str, Any]:
    """What models.toml is to say of a place. UnknownModelError, DownloadError, RegistryError."""
    from ..registry_edit import table_of_hub, table_of_name, table_of_path
    from ..registry_errors import RegistryError

    if place.startswith(PREFIX):
        return table_of_hub(_newest(console, registry, place).entry)
    model = registry.resolve(place)
    if model.entry is not None:
        raise RegistryError(f"{place} is the name of a model already; give a path, or hf:OWNER/REPOSITORY")
    told = model_facts.declared(model.path)
    if told["problem"] and not force:
        raise RegistryError(f"{model.path} cannot be loaded: {told['problem']}; --force adds it all the same")
    licence = told.get("licence", "")
    return table_of_name(model.name, licence) if model.elsewhere else table_of_path(model.path, licence)


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


@models.command("forget")
@click.argument("name", shell_complete=complete_model)
@json_option
@click.pass_obj
def forget_name(console: Console, name: str, as_json: bool) -> None:
    """Take a name out of your models.toml; the model's files stay (termchat models rm deletes downloads)."""
    from ..paths import Paths
    from ..registry_edit import remove_entry

    file = Paths.default().registry_file
    remove_entry(file, name)
    if as_json:
        console.print_json({"name": name, "file": str(file)})
    else:
        console.output.write(f"{name} is out of {file}; no file of the model was touched\n")


@models.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_model)
@json_option
@click.pass_obj
def verify_models(console: Console, names: tuple[str, ...], as_json: bool) -> int:
    """Check the files of models by their sha256; without a name all that are here.

    Exit code 1 if one is damaged.
    """
    registry = load_registry(console)
    known = (name for name in (*registry.entries, *registry.of_the_hub()) if registry.has_file(name))
    chosen = list(dict.fromkeys(map(registry.followed, names or known)))
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
    if name.startswith(PREFIX) or name in registry.entries:
        if path == registry.target(registry.entry(name)):
            return f"run: termchat models pull {name}"
        if name in registry.entries:
            return "it is your own file: replace it, or correct models.toml"
    return "it is another program's: have that bring it again"


models.add_command(quantize_model)
