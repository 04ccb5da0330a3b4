"""The command line: where what was asked for goes, and how the program ends."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from ..errors import UserError, did_you_mean, fault, shown
from ..habits import of_program
from .commands import COMMANDS, PROMPT_COMMAND, command_of
from .console import Console, to_json
from .errors import OK, READER_CLOSED, CliError, Failure, failure_of
from .options import COMPLETION, CommandGroup
from .output import Output, ReaderClosed, guard_descriptors
from .signals import Interrupted

LONGEST_PROBLEM = 400
"""Characters of what is said of arguments, however long those are."""


class Program(CommandGroup):
    """`termchat`: the first argument is a command only if it equals one; all else belongs to a prompt."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the prompt's command in front unless a command is named."""
        named = bool(args) and args[0] in COMMANDS
        return super().parse_args(ctx, args if named else [PROMPT_COMMAND, *args])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        return command_of(cmd_name) if cmd_name in (*COMMANDS, PROMPT_COMMAND) else None


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def program() -> None:
    """Stands for `termchat` itself; the help text is the prompt command's."""


def run(arguments: Sequence[str], console: Console | None = None) -> int:
    """Run the program with these arguments; the exit code. Nothing escapes as a traceback."""
    if console is None:
        closed = guard_descriptors()
        console = Console(Output(closed=1 in closed), closed=closed)
    console.signals.install()
    logging.lastResort = logging.NullHandler()  # nothing that a library logs or warns belongs on the terminal
    logging.captureWarnings(True)
    try:
        return _run(arguments, console)
    except Interrupted as signal:
        return signal.exit_code
    except ReaderClosed:
        return READER_CLOSED
    except click.ClickException as error:
        return _failed(arguments, console, Failure("usage", _usage(error, arguments)))
    except UserError as error:
        return _failed(arguments, console, failure_of(error))
    finally:
        console.signals.end()


def _failed(arguments: Sequence[str], console: Console, failure: Failure) -> int:
    """Say what went wrong, where it is read: on standard error, and with --jsonl as the last event too."""
    if COMPLETION in os.environ:  # it would be written into the line that is being typed
        return failure.exit_code
    console.messages.note(failure.message)
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--jsonl" in own and "--json" not in own and own[0] not in COMMANDS:
        with suppress(ReaderClosed, UserError):  # there is no one to tell
            console.output.write(to_json({"event": "error", **failure.as_dict()}) + "\n", json=True)
    return failure.exit_code


def _run(arguments: Sequence[str], console: Console) -> int:
    try:
        code = program.main(list(arguments), prog_name="termchat", obj=console, standalone_mode=False)
    except (UserError, click.ClickException, ReaderClosed):
        raise
    except Exception as error:
        from .errors import not_installed, refused

        log = _log_fault()
        if (sentence := refused(error)) is not None:
            raise CliError("limits", sentence) from error
        if isinstance(error, ImportError):
            raise CliError("install", not_installed(error)) from error
        raise CliError("internal", fault(error, log)) from error
    return code if isinstance(code, int) else OK


def _usage(error: click.ClickException, arguments: Sequence[str]) -> str:
    """What click says, on one line, and where the command's options are listed."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path.removesuffix(f" {PROMPT_COMMAND}") if context is not None else "termchat"
    takes_text = context is not None and getattr(context.command, "takes_text", False)
    if isinstance(error, click.NoSuchOption):
        problem = _no_such_option(error)
        if takes_text:
            problem += f"; a text that begins with a dash goes behind --: {command} -- TEXT"
    else:
        problem = " ".join(error.format_message().split()).removesuffix(".")
        if len(problem) > LONGEST_PROBLEM:  # it quotes an argument
            problem = f"{problem[:LONGEST_PROBLEM]}…"
        if problem.startswith("Got unexpected extra argument") and takes_text:
            quoted = f"a text of several words is one argument, in quotes: {command} 'TWO WORDS'"
            habit = of_program(arguments[0])
            meant = f"did you mean {habit}?" if habit is not None else ""
            meant = meant or did_you_mean(arguments[0], COMMANDS, "termchat {}", like=0.75)
            problem += f"; {meant or quoted}"
    return f"{problem} ({command} --help lists everything)"


def _no_such_option(error: click.NoSuchOption) -> str:
    """Which option there is not, and which ones may be meant: its own beginning is enough to know one."""
    parameters = error.ctx.command.get_params(error.ctx) if error.ctx is not None else ()
    names = [name for each in parameters for name in (*each.opts, *each.secondary_opts) if name[:2] == "--"]
    meant = did_you_mean(error.option_name, names, "{}", most=3, like=0.7)
    return f"No such option {shown(error.option_name)}" + (f" ({meant})" if meant else "")


def _log_fault() -> Path:
    """Write the exception that is being handled into the log; where that is."""
    from ..files import PathError
    from ..logs import start_logging
    from ..paths import Paths

    file = Paths.default().log_file
    if not logging.getLogger().handlers:
        with suppress(PathError):
            start_logging(file)
    logging.getLogger(__name__).exception("termchat failed")
    return file
