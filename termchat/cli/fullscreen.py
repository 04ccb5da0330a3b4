"""The full-screen chat with the command line's options. The engine is loaded after the first frame."""

from __future__ import annotations

from contextlib import suppress

import click

from ..collector import resume_collector
from ..config import Config
from ..files import PathError
from ..logs import start_logging
from ..paths import Paths
from ..settings import check_engine, check_sampling
from ..store import checked_id
from ..terminals import ends_at_once, wait_for_foreground
from .console import Console
from .errors import OK
from .request import Request


def screen(console: Console, request: Request) -> int:
    """Run the interface until the user leaves, which may be before it is drawn; the exit code.

    click.UsageError, ConversationIdError: before anything is drawn.
    """
    from ..tui.app import TermchatApp
    from ..tui.run import run
    from ..tui.start import Options

    if request.stats:
        raise click.UsageError("--stats needs a prompt, or --plain; the full screen shows the figures itself")
    for given, check in ((request.sampling, check_sampling), (request.engine, check_engine)):
        if given:
            try:
                check(given)
            except ValueError as error:
                raise click.UsageError(str(error)) from error
    if request.conversation is not None:
        checked_id(request.conversation)
    wait_for_foreground(console.stdin)
    if ends_at_once(console.stdin):
        return OK
    paths = Paths.default()
    config = Config.load(paths.config_file)
    with suppress(PathError):  # the interface says it when a conversation cannot be saved
        start_logging(paths.log_file, str(config.options["log_level"]))
    options = Options(
        model=request.model,
        download=request.yes,
        system=request.system or "",
        sampling=request.sampling,
        engine=request.engine,
        save=request.save,
        newest=request.newest,
        conversation=request.conversation,
    )

    def exit_code() -> int:
        received = console.signals.received
        return OK if received is None else 128 + received

    resume_collector()
    return run(TermchatApp(paths, config, options), console.signals.calling, exit_code, console.messages.note)
