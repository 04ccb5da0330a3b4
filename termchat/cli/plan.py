"""`termchat plan`: what a model takes of the memory, and how many conversations fit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from .. import units
from .console import Console
from .errors import CliError
from .options import (
    ENGINE_OPTIONS,
    SectionedCommand,
    engine_options,
    given,
    json_option,
    model_options,
    option,
)


@click.command(cls=SectionedCommand)
@model_options
@option(
    "Plan",
    "--tokens",
    type=click.IntRange(min=1),
    default=1024,
    metavar="N",
    help="Length of a conversation, prompt and replies together (1024).",
)
@json_option
@engine_options
@click.pass_obj
def plan(console: Console, /, **values: Any) -> None:
    """Show how much memory a model takes and how many conversations fit, without loading it."""
    from engine import EngineError, plan_memory

    from .serving import choose, load_setup

    choice = choose(
        console, load_setup(console), values["model"], yes=values["yes"], flags=given(values, ENGINE_OPTIONS)
    )
    try:
        found = plan_memory(choice.config)
    except EngineError as error:
        raise CliError(error.code, error.message) from error
    for note in found.notes:
        console.messages.note(note)
    tokens = min(values["tokens"], found.context_length)
    conversations = found.conversations(tokens)
    if values["as_json"]:
        console.print_json(
            {**asdict(found), "model": choice.model.name, "tokens": tokens, "conversations": conversations}
        )
        return
    left = found.free_bytes - found.weight_bytes - found.kv_bytes
    active, parallel = "", f" in parallel ({found.ranks})" if found.ranks else ""
    if found.active_bytes < found.weight_bytes:
        active = f", of which a token takes {units.size(found.active_bytes)}"
    lines = [
        f"{choice.model.name}{parallel}: weights {units.size(found.weight_bytes)} "
        f"({found.quantization}){active}",
        f"KV cache {units.size(found.kv_bytes)}: {found.blocks} blocks of {found.block_size} tokens, "
        f"{units.size(found.kv_bytes_per_token)} a token",
        f"{conversations} conversations of {tokens} tokens fit at once; one can have {found.context_length}",
        f"{units.size(found.free_bytes)} are free now; "
        + (f"{units.size(left)} stay free" if left >= 0 else f"{units.size(-left)} are missing"),
    ]
    console.output.write("".join(f"{line}\n" for line in lines))
