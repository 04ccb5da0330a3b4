"""The options of `termchat batch`."""

from __future__ import annotations

from typing import Any

import click

from ...constraints import constraint_of
from ..completions import complete_file
from ..console import Console
from ..options import (
    DRAFT_OPTIONS,
    ENGINE_OPTIONS,
    SAMPLING_OPTIONS,
    SectionedCommand,
    constraint_options,
    draft_options,
    engine_options,
    given,
    logprobs_option,
    model_options,
    option,
    raw_option,
    sampling_options,
    system_option,
    template_option,
)


@click.command(cls=SectionedCommand)
@click.argument("source", metavar="IN.jsonl", shell_complete=complete_file)
@option(
    "Batch",
    "-o",
    "--output",
    metavar="OUT.jsonl",
    shell_complete=complete_file,
    default="-",
    help="Where results go; - is standard output.",
)
@option(
    "Batch",
    "--concurrency",
    type=click.IntRange(1, 4096),
    default=16,
    metavar="N",
    help="Conversations computed at the same time (16).",
)
@logprobs_option
@model_options
@system_option
@raw_option
@template_option
@sampling_options
@constraint_options
@engine_options
@draft_options
@click.pass_obj
def batch(console: Console, /, **values: Any) -> int:
    """Answer a file of prompts, all in one continuous batch.

    A line is {"id": .., "prompt": ".."} or {"id": .., "messages": [{"role": .., "content": ..}]}, and may
    hold sampling settings of its own ("temperature", "max_tokens", ...). Results come in order of completion,
    one line each: {"index", "id", "text", ...} or {"index", "id", "error"}. Run it again with the same output
    file to answer what is missing or failed. IN.jsonl can be - for standard input.
    """
    from .run import BatchRequest, run_batch

    for name in ("system", "template"):
        if values["raw"] and values[name]:
            raise click.UsageError(f"--raw and --{name} exclude each other")
    request = BatchRequest(
        source=values["source"],
        output=values["output"],
        concurrency=values["concurrency"],
        model=values["model"],
        yes=values["yes"],
        system=values["system"] or "",
        raw=values["raw"],
        sampling={
            **given(values, (*SAMPLING_OPTIONS, "logprobs")),
            **constraint_of(values, console.read_given),
        },
        engine=given(values, (*ENGINE_OPTIONS, *DRAFT_OPTIONS, "template")),
    )
    return run_batch(console, request)
