"""`termchat models quantize`: a model with fewer bits, saved: it loads without being quantized again."""

from __future__ import annotations

from typing import Any

import click

from .. import units
from ..files import expanded
from .completions import complete_file, complete_model
from .console import Console
from .download import downloaded, load_registry
from .errors import CliError
from .options import SectionedCommand, json_option, option
from .progress import ProgressLine


@click.command("quantize", cls=SectionedCommand)
@click.argument("name", metavar="NAME|PATH", shell_complete=complete_model)
@option(
    "Output",
    "--to",
    "quantization",
    required=True,
    type=click.Choice(["int8", "int4", "nf4"]),
    help="Bits of the weights: int8 (8.5 with scales), int4 (5) or nf4 (4.5, folders only).",
)
@option(
    "Output",
    "-o",
    "--output",
    required=True,
    metavar="FILE|DIR",
    shell_complete=complete_file,
    help="Where it goes: a GGUF file for a model from one, a folder for one from a folder.",
)
@option("Output", "--force", is_flag=True, help="Replace a model that is there already.")
@option("Model", "-y", "--yes", is_flag=True, help="Download a model that is not here without asking.")
@json_option
@click.pass_obj
def quantize_model(console: Console, /, name: str, **values: Any) -> None:
    """Save a model with fewer bits; it then loads at once, with no conversion.

    It takes its place when it is whole; what interrupts it leaves nothing behind.
    """
    from engine import EngineError
    from engine.saving.model import quantize_model as save

    model = downloaded(console, load_registry(console), name, yes=values["yes"])
    target = expanded(values["output"])
    line = ProgressLine(console.messages)

    def watch(done: int, total: int) -> None:
        line.show(f"quantizing {model.name}: {100 * done // max(1, total)} % of {units.size(total)}")

    try:
        saved = save(model.path, values["quantization"], target, replace=values["force"], watch=watch)
    except EngineError as error:
        raise CliError(error.code, error.message) from error
    except OSError as error:
        raise CliError("path", f"{target}: can't be written: {error.strerror or error}") from error
    finally:
        line.end()
    for kept in saved.kept:
        console.messages.note(f"{kept} stays as it was: {values['quantization']} can't hold it")
    if values["as_json"]:
        console.print_json({"path": str(saved.path), "bytes": saved.nbytes, "kept": list(saved.kept)})
        return
    console.output.write(f"{saved.path}: {units.size(saved.nbytes)}\n")
