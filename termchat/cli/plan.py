"""`termchat plan`: what a model takes of the memory, how many conversations fit, and at most how fast."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .console import Console
from .errors import CliError
from .option_types import Whole
from .options import (
    DRAFT_OPTIONS,
    ENGINE_OPTIONS,
    SectionedCommand,
    draft_options,
    engine_options,
    given,
    json_option,
    model_options,
    option,
    template_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from engine import MemoryPlan
    from engine.data_sheets import Machine
    from engine.measured import Measured
    from engine.workload import Workload

    from .plan_report import Planned

_PARAMETERS = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?(?:e[0-9]{1,2})?) ?([kmbt]?)")


class Parameters(click.ParamType[float]):
    """How many weights a model has: 7B, 1.5b, 350M, 7e9."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, whose range the engine checks."""
        if isinstance(value, float):
            return value
        found = _PARAMETERS.fullmatch(value.strip().lower())
        if found is None:
            self.fail(f"{value[:40]!r} is no number of parameters; give one as 7B, 350M or 7e9", param, ctx)
        return float(found[1]) * float({"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}[found[2]])


@click.command(cls=SectionedCommand)
@model_options
@option(
    "Plan",
    "--params",
    type=Parameters(),
    metavar="7B",
    help="Plan for a model of so many parameters, instead of one that is there.",
)
@option(
    "Plan",
    "--gpu",
    metavar="NAME|all",
    help="On this machine instead of the one here, by its data sheet; all: a table of them.",
)
@option(
    "Plan",
    "--context",
    "--tokens",
    "tokens",
    type=Whole(1, 1 << 24),
    default=1024,
    metavar="N",
    help="Length of a conversation, prompt and replies together (1024).",
)
@option(
    "Plan",
    "--concurrency",
    type=Whole(1, 1 << 20),
    default=8,
    metavar="N",
    help="Conversations at the same time (8).",
)
@json_option
@engine_options
@draft_options
@template_option
@click.argument("file", required=False, metavar="")
@click.pass_obj
def plan(console: Console, /, **values: Any) -> None:
    """Show what a model takes of the memory, how many conversations fit, and how fast it is at most.

    Nothing is loaded: sizes come from the headers of the model's files, speeds of this machine from a short
    measurement, those of others from their data sheets. They are bounds that good kernels come near to.
    """
    from engine import EngineError

    from .plan_report import as_json, report

    if values["file"] is not None:
        raise click.UsageError(f"name the model by --model: termchat plan -m {shlex.quote(values['file'])}")
    if values["params"] is not None and values["model"] is not None:
        raise click.UsageError("--params and --model exclude each other")
    for name in DRAFT_OPTIONS if values["params"] is not None else ():
        if values[name] is not None:
            flag = DRAFT_OPTIONS[name].get("flags", (f"--{name.replace('_', '-')}",))[0]
            raise click.UsageError(f"{flag} needs a model that is there: --params has none")
    try:
        planned = _planned(console, values)
    except EngineError as error:
        code = "usage" if error.code == "invalid_request" else error.code
        raise CliError(code, error.message) from error
    if values["as_json"]:
        console.print_json(as_json(planned))
    else:
        console.output.write("".join(f"{line}\n" for line in report(console, planned)))


def _planned(console: Console, values: dict[str, Any]) -> Planned:
    """What was asked for. EngineError."""
    from engine import EngineConfig, plan_model
    from engine.data_sheets import MACHINES, machine_of
    from engine.named_templates import read_template
    from engine.workload import workload_sized

    from .plan_report import Planned
    from .serving import choose, load_setup

    wanted = values["gpu"]
    machines = None if wanted is None else MACHINES if wanted == "all" else (machine_of(wanted),)
    flags = given(values, (*ENGINE_OPTIONS, *DRAFT_OPTIONS, "template"))
    memory: MemoryPlan | None = None
    draft: Workload | None = None
    lighter: Mapping[str, Workload]
    setup = load_setup(console)
    if values["params"] is not None:
        try:
            config = EngineConfig(model="", **flags)
        except ValueError as error:
            raise CliError("usage", str(error)) from error

        sized = partial(workload_sized, values["params"])
        form = config.cache_format, config.block_size
        here = own = sized(config.quantization, *form)
        fewer = {"int8": sized("int8", *form), "int4": sized("int4", *form)}
        lighter = {word: each for word, each in fewer.items() if each.weight_bytes < own.weight_bytes}
        context = config.context_length or max(own.context_length, values["tokens"])
        name = own.name
    else:
        choice = choose(console, setup, values["model"], yes=values["yes"], flags=flags)
        config = choice.config
        if wanted is not None:  # how many cards of another machine share it is what the estimate says
            config = replace(config, tensor_parallel=1, pipeline_parallel=1)
        memory, here, own, lighter, draft = plan_model(config)
        context, name = memory.context_length, choice.model.name
        if config.template is not None:
            read_template(config.template)  # as a chat would
        for note in memory.notes if wanted is None else ():
            console.messages.note(note)
    if values["tokens"] > context:
        console.messages.note(f"a conversation can have {context} tokens: that is what is planned for")
    tokens = min(values["tokens"], context)
    if machines is None:
        from engine.measured import this_machine

        measured = this_machine(config, here.traffic.all_weight_bytes)
        machines = (_best(setup.paths.peaks, measured),)
    workload, memory = (here, memory) if wanted is None else (own, None)
    return Planned(
        name,
        workload,
        lighter,
        machines,
        tokens,
        values["concurrency"],
        setup.config,
        memory,
        draft,
        config.draft_window,
    )


def _best(path: Path, measured: Measured) -> Machine:
    """The machine with the best bandwidth that any run has found there."""
    from ..peaks import Peaks

    known = Peaks(path).at(measured.place)
    machine = measured.machine
    return machine._replace(bandwidth=max(known or 0.0, machine.bandwidth or 0.0) or None)
