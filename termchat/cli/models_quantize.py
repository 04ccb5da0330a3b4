"""`termchat models quantize`: a model with fewer bits, saved: it loads without being quantized again."""

from __future__ import annotations

import time
from typing import Any

import click

from .. import units
from ..files import expanded
from .console import Console
from .download import LINE_SECONDS, downloaded, load_registry
from .errors import CliError
from .options import SectionedCommand, complete_model, json_option, option

REDRAW_SECONDS = 0.1


class _Progress:
    """One line that changes on a terminal, and is gone at the end; else lines every few seconds."""

    def __init__(self, console: Console, name: str) -> None:
        self._messages, self._name = console.messages, name
        self._shown = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now, on_terminal = time.monotonic(), self._messages.is_terminal
        if now - self._shown < (REDRAW_SECONDS if on_terminal else LINE_SECONDS):
            return
        self._shown = now
        text = f"quantizing {self._name}: {100 * done // max(1, total)} % of {units.size(total)}"
        (self._messages.progress if on_terminal else self._messages.note)(text)

    def end(self) -> None:
        if self._messages.is_terminal:
            self._messages.progress("")


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
    progress = _Progress(console, model.name)
    try:
        saved = save(model.path, values["quantization"], target, replace=values["force"], watch=progress)
    except EngineError as error:
        raise CliError(error.code, error.message) from error
    except OSError as error:
        raise CliError("path", f"{target}: can't be written: {error.strerror or error}") from error
    finally:
        progress.end()
    for kept in saved.kept:
        console.messages.note(f"{kept} stays as it was: {values['quantization']} can't hold it")
    if values["as_json"]:
        console.print_json({"path": str(saved.path), "bytes": saved.nbytes, "kept": list(saved.kept)})
        return
    console.output.write(f"{saved.path}: {units.size(saved.nbytes)}\n")
