"""`termchat PROMPT`: one reply, or a chat on the terminal if there is no prompt."""

from __future__ import annotations

import os
from typing import Any

import click

from ..charset import charset
from ..constraints import constraint_of
from ..habits import of_program
from ..terminals import obeys_sequences
from . import stdin
from .commands import PROMPT_COMMAND, described
from .completions import complete_conversation
from .console import Console
from .errors import CliError
from .option_types import Text
from .options import (
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
    options,
    raw_option,
    sampling_options,
    system_option,
    template_option,
)

STANDARD_INPUT = "-"
"""A prompt that stands for standard input, as with other programs; even a terminal is read to its end."""

EXAMPLES = (
    'termchat "Why is the sky blue?"',
    'git diff | termchat "Write a commit message for this change"',
    'termchat -t 0 --json "Count from 1 to 10."',
    "termchat --schema 'name, age int' \"Invent a dog\"",
    "termchat batch questions.jsonl -o answers.jsonl",
)


class PromptCommand(SectionedCommand):
    """The command behind `termchat PROMPT`, whose help is that of the whole program."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Both forms."""
        formatter.write_usage("termchat", "[OPTIONS] [PROMPT]")
        formatter.write_usage("termchat", "COMMAND [ARGUMENTS]", prefix="       ")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands and some examples."""
        with formatter.section("Commands (each has its own --help)"):
            formatter.write_dl(described())
        with formatter.section("Examples"):
            formatter.write("".join(f"  {example}\n" for example in EXAMPLES))


def complete_first(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The names of commands, for the shell, as long as nothing else was typed."""
    from click.core import ParameterSource
    from click.shell_completion import CompletionItem

    if any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params):
        return []
    return [CompletionItem(name, help=text) for name, text in described() if name.startswith(incomplete)]


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
    logprobs_option,
    option("Output", "--no-stream", is_flag=True, help="Nothing until the reply is complete."),
    option("Output", "--plain", is_flag=True, help="A chat line by line instead of on the full screen."),
    option("Output", "--stats", is_flag=True, help="Speed and memory traffic, on standard error."),
)

conversation_options = options(
    option(
        "Conversation", "-c", "--continue", "newest", is_flag=True, help="Go on with the newest conversation."
    ),
    option(
        "Conversation",
        "--cid",
        metavar="ID",
        shell_complete=complete_conversation,
        help="Go on with this conversation; created if new.",
    ),
    option("Conversation", "--no-save", is_flag=True, help="Do not store the conversation."),
)


@click.command(PROMPT_COMMAND, cls=PromptCommand)
@click.argument("prompt", required=False, type=Text(), shell_complete=complete_first)
@model_options
@system_option
@raw_option
@template_option
@sampling_options
@constraint_options
@output_options
@conversation_options
@engine_options
@draft_options
@version_option
@click.pass_context
def prompt(ctx: click.Context, /, **values: Any) -> int:
    """Chat with a language model that runs inside this program.

    With a prompt, or with text piped in, one reply goes to standard output; piped text comes after the
    prompt, a blank line between. On a terminal without a prompt a chat opens. A prompt that is named like a
    command, or that begins with a dash, goes behind `--`.
    """
    from .request import Request

    console: Console = ctx.obj
    _check_combination(values)
    constraint = constraint_of(values, console.read_given)  # first: it may be what is on standard input
    text = _prompt_text(console, values)
    request = Request(
        text=text or "",
        model=values["model"],
        yes=values["yes"],
        system=values["system"],
        raw=values["raw"],
        sampling={**given(values, (*SAMPLING_OPTIONS, "logprobs")), **constraint},
        engine=given(values, (*ENGINE_OPTIONS, *DRAFT_OPTIONS, "template")),
        form="json" if values["as_json"] else "jsonl" if values["jsonl"] else "plain",
        stream=not values["no_stream"],
        stats=values["stats"],
        save=not values["no_save"],
        newest=values["newest"],
        conversation=values["cid"],
    )
    if text is not None:
        if values["logprobs"] is not None and request.form == "plain":
            raise click.UsageError("--logprobs needs --json or --jsonl, where it can be shown")
        if values["plain"]:
            raise click.UsageError("--plain is for a chat on the terminal, without a prompt")
        from .oneshot import answer

        return answer(console, request)
    _check_chat(values)
    if not values["plain"] and _full_screen(console):
        from .fullscreen import screen

        return screen(console, request)
    from .line_chat import chat

    return chat(console, request)


def _prompt_text(console: Console, values: dict[str, Any]) -> str | None:
    """The text to answer, None for a chat on the terminal. CliError: there is nothing to answer."""
    argument: str | None = values["prompt"]
    kind, messages = console.stdin_kind, console.messages
    named = argument == STANDARD_INPUT
    if named:
        argument = None
    data = None
    if kind != "closed" and (named or kind == "data" or (kind == "device" and argument is None)):
        waiting = (lambda: messages.note("reading standard input")) if argument else None
        read = stdin.read_all(console.stdin, waiting)
        data = stdin.decode(read, "standard input", messages.note, charset())
        if not values["raw"]:
            data = stdin.without_line_end(data)
    elif argument is None and console.interactive:
        return None
    if argument is not None and data is None and (habit := of_program(argument)) is not None:
        messages.note(f"{argument!r} is the message to the model; did you mean {habit}?")
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
    if obeys_sequences(os.environ):
        return True
    kind = os.environ.get("TERM", "")
    why = f"TERM is {kind}" if kind else "TERM is not set"
    console.messages.note(f"the chat is line by line, as {why}: this terminal can show no full screen")
    return False


def _check_chat(values: dict[str, Any]) -> None:
    """Refuse options that mean nothing in a chat on the terminal. click.UsageError."""
    names = {"as_json": "--json", "jsonl": "--jsonl", "no_stream": "--no-stream", "raw": "--raw"}
    names |= {"logprobs": "--logprobs"}
    for name, flag in names.items():
        if values[name] not in (None, False):
            raise click.UsageError(f"{flag} needs a prompt")


def _check_combination(values: dict[str, Any]) -> None:
    """Refuse options that contradict each other. click.UsageError."""
    names = {"as_json": "--json", "jsonl": "--jsonl", "newest": "-c", "cid": "--cid", "no_save": "--no-save"}
    names |= {"raw": "--raw", "system": "--system", "template": "--template"}
    for group in (
        ("as_json", "jsonl"),
        ("newest", "cid", "no_save"),
        ("raw", "newest", "cid"),
        ("raw", "system"),
        ("raw", "template"),
    ):
        chosen = [names[name] for name in group if values[name] not in (None, False)]
        if len(chosen) > 1:
            raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
