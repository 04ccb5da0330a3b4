"""`termchat doctor`: what this machine offers, what is used of it, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...errors import UserError
from ..console import Console
from ..errors import FAILED, OK
from ..options import (
    ENGINE_OPTIONS,
    SectionedCommand,
    draft_options,
    engine_options,
    given,
    json_option,
    model_options,
    template_option,
)
from .machine import examine_gpus, examine_machine
from .report import Report
from .trial import try_model

if TYPE_CHECKING:
    from ...setup import Setup


@click.command(cls=SectionedCommand)
@model_options
@json_option
@engine_options
@draft_options
@template_option
@click.pass_obj
def doctor(console: Console, /, **values: Any) -> int:
    """Check the installation: versions, device, speed of the memory, model files, stored conversations.

    Exit code 1 if something is broken; what is merely slower than it could be is listed.
    """
    from ..serving import load_setup

    report = Report()
    setup = load_setup(console)
    examine_machine(report)
    examine_gpus(report, setup, given(values, ENGINE_OPTIONS))
    _files(report, setup)
    try_model(report, console, setup, values)
    if values["as_json"]:
        console.print_json(report.as_dict())
    else:
        report.write(console)
    return FAILED if report.broken else OK


def _files(report: Report, setup: Setup) -> None:
    from ...store import Store, StoreDamagedError

    paths = setup.paths
    report.facts |= {
        "settings": str(paths.config_file),
        "database": str(paths.database),
        "log": str(paths.log_file),
    }
    for warning in setup.warnings:
        report.problem(warning, "the file has an error", "correct the line, or remove it")
    try:
        with Store(paths.database) as store:
            report.facts["conversations"] = len(store.list_conversations())
            notice, broken = store.notice, False
    except UserError as error:
        notice, broken = str(error), isinstance(error, StoreDamagedError)
    if notice is not None:
        mend = "as the reason says; --no-save does without"
        report.problem("conversations are not saved", notice, mend, broken=broken)
    models = [status for status in setup.registry.list_models() if status.path is not None]
    report.facts["models"] = {status.entry.name: str(status.path) for status in models}
