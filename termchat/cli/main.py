"""The command line: what was asked for, where it goes, and how the program ends."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ..errors import UserError
from . import stdin
from .console import Console, to_json
from .errors import OK, READER_CLOSED, CliError, Failure, failure_of
from .options import (
    COMPLETION,
    ENGINE_OPTIONS,
    SAMPLING_OPTIONS,
    CommandGroup,
    SectionedCommand,
    Text,
    engine_options,
    given,
    model_options,
    option,
    options,
    raw_option,
    sampling_options,
    system_option,
)
from .output import Output, ReaderClosed, guard_descriptors
from .signals import Interrupted

PROMPT_COMMAND = "\0prompt"
"""Name of the command behind `termchat PROMPT`; no argument can be this."""

COMMANDS = {
    "models": "models",
    "history": "history",
    "batch": "batch.command",
    "bench": "bench.command",
    "plan": "plan",
    "doctor": "doctor",
    "themes": "themes",
    "config": "config",
    "completion": "completion",
}
"""Each with the module that has it, imported when it is asked for: a prompt needs none of them."""

LINE_TERMINALS = ("", "dumb", "unknown")
"""Values of TERM whose terminals cannot move the cursor."""

LONGEST_PROBLEM = 400
"""Characters of what is said of arguments, however long those are."""

EXAMPLES = (
    'termchat "Why is the sky blue?"',
    'git diff | termchat "Write a commit message for this change"',
    'termchat -t 0 --json "Count from 1 to 10."',
    "termchat batch questions.jsonl -o answers.jsonl",
)


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
        if cmd_name in COMMANDS:
            return _command(cmd_name)
        return prompt if cmd_name == PROMPT_COMMAND else None


def _command(name: str) -> click.Command:
    command: click.Command = getattr(import_module(f".{COMMANDS[name]}", __package__), name)
    return command


def _described() -> list[tuple[str, str]]:
    """Each command and what it does."""
    return [(name, _command(name).get_short_help_str(100)) for name in COMMANDS]


class PromptCommand(SectionedCommand):
    """The command behind `termchat PROMPT`, whose help is that of the whole program."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both forms."""
        formatter.write_usage("termchat", "[OPTIONS] [PROMPT]")
        formatter.write_usage("termchat", "COMMAND [ARGUMENTS]", prefix="       ")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands and some examples."""
        with formatter.section("Commands (each has its own --help)"):
            formatter.write_dl(_described())
        with formatter.section("Examples"):
            formatter.write("".join(f"  {example}\n" for example in EXAMPLES))


def complete_first(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The names of commands, for the shell, as long as nothing else was typed."""
    from click.core import ParameterSource
    from click.shell_completion import CompletionItem

    if any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params):
        return []
    return [CompletionItem(name, help=text) for name, text in _described() if name.startswith(incomplete)]


def show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the version and end."""
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        ctx.obj.output.write(f"termchat {version('termchat')}\n")
        ctx.exit()


version_option = option(
    "Other",
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=show_version,
    help="Show the version and exit.",
)

output_options = options(
    option("Output", "--json", "as_json", is_flag=True, help="One JSON object with text, usage and metrics."),
    option("Output", "--jsonl", is_flag=True, help="JSON events, one a line, as the reply comes."),
    option("Output", "--no-stream", is_flag=True, help="Nothing until the reply is complete."),
    option("Output", "--plain", is_flag=True, help="A chat line by line instead of on the full screen."),
    option("Output", "--stats", is_flag=True, help="Speed and memory traffic, on standard error."),
)

conversation_options = options(
    option(
        "Conversation", "-c", "--continue", "newest", is_flag=True, help="Go on with the newest conversation."
    ),
    option("Conversation", "--cid", metavar="ID", help="Go on with this conversation; created if new."),
    option("Conversation", "--no-save", is_flag=True, help="Do not store the conversation."),
)


@click.command(PROMPT_COMMAND, cls=PromptCommand)
@click.argument("prompt", required=False, type=Text(), shell_complete=complete_first)
@model_options
@system_option
@raw_option
@sampling_options
@output_options
@conversation_options
@engine_options
@version_option
@click.pass_context
def prompt(ctx: click.Context, /, **values: Any) -> int:
    """Chat with a language model that runs inside this program.

    With a prompt, or with text piped in, one reply goes to standard output; piped text comes after the
    prompt, a blank line between. On a terminal without a prompt a chat opens. A prompt that is named like a
    command, or that begins with a dash, goes behind `--`.
    """
    console: Console = ctx.obj
    _check_combination(values)
    text = _prompt_text(console, values)
    shared = {
        "model": values["model"],
        "yes": values["yes"],
        "system": values["system"],
        "raw": values["raw"],
        "sampling": given(values, SAMPLING_OPTIONS),
        "engine": given(values, ENGINE_OPTIONS),
        "form": "json" if values["as_json"] else "jsonl" if values["jsonl"] else "plain",
        "stream": not values["no_stream"],
        "stats": values["stats"],
        "save": not values["no_save"],
        "newest": values["newest"],
        "conversation": values["cid"],
    }
    if text is None:
        _check_chat(values)
        if not values["plain"] and _full_screen(console):
            from .fullscreen import screen

            return screen(console, values, shared["sampling"], shared["engine"])
    elif values["plain"]:
        raise click.UsageError("--plain is for a chat on the terminal, without a prompt")
    from .request import Request

    if text is None:
        from .line_chat import chat

        return chat(console, Request(text="", **shared))
    from .oneshot import answer

    return answer(console, Request(text=text, **shared))


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
        return _failed(arguments, console, Failure("usage", _usage(error)))
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
        from .errors import refused

        log = _log_fault()
        if (sentence := refused(error)) is not None:
            raise CliError("limits", sentence) from error
        message = f"termchat has a fault: {type(error).__name__}: {error}; {log} has the details"
        raise CliError("internal", message) from error
    return code if isinstance(code, int) else OK


def _usage(error: click.ClickException) -> str:
    """What click says, on one line, and where the command's options are listed."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path.removesuffix(f" {PROMPT_COMMAND}") if context is not None else "termchat"
    problem = " ".join(error.format_message().split()).removesuffix(".")
    if len(problem) > LONGEST_PROBLEM:  # it quotes an argument
        problem = f"{problem[:LONGEST_PROBLEM]}…"
    takes_text = context is not None and getattr(context.command, "takes_text", False)
    if isinstance(error, click.NoSuchOption) and takes_text:
        problem += f"; a text that begins with a dash goes behind --: {command} -- TEXT"
    return f"{problem} ({command} --help lists everything)"


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


def _prompt_text(console: Console, values: dict[str, Any]) -> str | None:
    """The text to answer, None for a chat on the terminal. CliError: there is nothing to answer."""
    argument: str | None = values["prompt"]
    kind, messages = console.stdin_kind, console.messages
    data = None
    if kind == "data" or (kind == "device" and argument is None):
        waiting = (lambda: messages.note("reading standard input")) if argument else None
        data = stdin.decode(stdin.read_all(console.stdin, waiting), "standard input", messages.note)
        if not values["raw"]:
            data = stdin.without_line_end(data)
    elif argument is None and console.interactive:
        return None
    text = stdin.joined(argument, data)
    if not text.strip():
        raise CliError(
            "empty_prompt",
            'there is no prompt; give one as an argument (termchat "Hello") or on standard input'
            + ("" if console.interactive else ", or run termchat on a terminal to chat"),
        )
    return text


def _full_screen(console: Console) -> bool:
    """Whether the terminal can show more than lines; if not, that is said."""
    kind = os.environ.get("TERM", "")
    if kind not in LINE_TERMINALS:
        return True
    why = f"TERM is {kind}" if kind else "TERM is not set"
    console.messages.note(f"the chat is line by line, as {why}: this terminal can show no full screen")
    return False


def _check_chat(values: dict[str, Any]) -> None:
    """Refuse options that mean nothing in a chat on the terminal. click.UsageError."""
    names = {"as_json": "--json", "jsonl": "--jsonl", "no_stream": "--no-stream", "raw": "--raw"}
    for name, flag in names.items():
        if values[name]:
            raise click.UsageError(f"{flag} needs a prompt")


def _check_combination(values: dict[str, Any]) -> None:
    """Refuse options that contradict each other. click.UsageError."""
    names = {"as_json": "--json", "jsonl": "--jsonl", "newest": "-c", "cid": "--cid", "no_save": "--no-save"}
    names |= {"raw": "--raw", "system": "--system"}
    for group in (
        ("as_json", "jsonl"),
        ("newest", "cid", "no_save"),
        ("raw", "newest", "cid"),
        ("raw", "system"),
    ):
        chosen = [names[name] for name in group if values[name] not in (None, False)]
        if len(chosen) > 1:
            raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
