"""The full-screen chat with the command line's options. The engine is loaded after the first frame."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from ..config import Config
from ..files import PathError
from ..logs import LEVELS, Level, start_logging
from ..paths import Paths
from ..settings import check_engine, check_sampling
from ..startup import resume_collector
from ..store import checked_id
from .console import Console
from .errors import OK


def screen(
    console: Console, values: Mapping[str, Any], sampling: dict[str, Any], engine: dict[str, Any]
) -> int:
    """Run the interface until the user leaves; the exit code. values: of the prompt's command.

    click.UsageError, ConversationIdError: before anything is drawn.
    """
    from ..tui.app import TermchatApp
    from ..tui.run import run
    from ..tui.start import Options

    if values["stats"]:
        raise click.UsageError("--stats needs a prompt, or --plain; the full screen shows the figures itself")
    for given, check in ((sampling, check_sampling), (engine, check_engine)):
        if given:
            try:
                check(given)
            except ValueError as error:
                raise click.UsageError(str(error)) from error
    if values["cid"] is not None:
        checked_id(values["cid"])
    paths = Paths.default()
    config = Config.load(paths.config_file)
    level: Level = next((level for level in LEVELS if level == config.options["log_level"]), "warning")
    with suppress(PathError):  # the interface says it when a conversation cannot be saved
        start_logging(paths.log_file, level)
    options = Options(
        model=values["model"],
        fetch=values["yes"],
        system=values["system"] or "",
        sampling=sampling,
        engine=engine,
        save=not values["no_save"],
        newest=values["newest"],
        conversation=values["cid"],
    )

    def exit_code() -> int:
        received = console.signals.received
        return OK if received is None else 128 + received

    resume_collector()
    return run(TermchatApp(paths, config, options), console.signals.calling, exit_code, console.messages.note)
