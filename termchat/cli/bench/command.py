"""The options of `termchat bench`."""

from __future__ import annotations

from typing import Any

import click

from ..console import Console
from ..options import (
    DRAFT_OPTIONS,
    ENGINE_OPTIONS,
    SectionedCommand,
    draft_options,
    engine_options,
    given,
    json_option,
    model_options,
    option,
)

COUNT = click.IntRange(min=1)


@click.command(cls=SectionedCommand)
@model_options
@option(
    "Load", "--concurrency", type=COUNT, default=8, metavar="N", help="Conversations at the same time (8)."
)
@option("Load", "--prompt-tokens", type=COUNT, default=128, metavar="P", help="Tokens of each prompt (128).")
@option("Load", "--output-tokens", type=COUNT, default=64, metavar="O", help="Tokens of each reply (64).")
@option("Load", "--requests", type=COUNT, metavar="R", help="Requests in all (twice the concurrency).")
@option(
    "Load",
    "--baseline",
    type=click.Choice(["sequential", "static"]),
    help="Also serve the same load one by one, or in batches that wait for their slowest, and compare.",
)
@option("Load", "--sweep", is_flag=True, help="Measure at 1, 2, 4, ... up to N conversations.")
@json_option
@engine_options
@draft_options
@click.pass_obj
def bench(console: Console, /, **values: Any) -> int:
    """Measure latency, throughput and memory traffic with prompts of random tokens.

    Definitions are those of the NVIDIA NIM guide: TTFT from submit to the first token, ITL the mean time
    between a reply's tokens, both as distributions over requests; tokens a second per user (reply / its whole
    time) and of the system (all replies / span from the first request to the last reply).
    """
    from ..serving import choose, load_setup
    from .run import Load, run_bench

    name, flags = values["model"], given(values, (*ENGINE_OPTIONS, *DRAFT_OPTIONS))
    choice = choose(console, load_setup(console), name, yes=values["yes"], flags=flags)
    load = Load(
        concurrency=values["concurrency"],
        prompt_tokens=values["prompt_tokens"],
        output_tokens=values["output_tokens"],
        requests=values["requests"] or 2 * values["concurrency"],
    )
    return run_bench(
        console, choice, load, values["baseline"], sweep=values["sweep"], as_json=values["as_json"]
    )
