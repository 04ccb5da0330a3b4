"""Options that several commands share, one entry each, in sections of the help text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

import click

from ..constraints import CONSTRAINTS
from ..errors import did_you_mean, shown
from ..habits import of_group
from ..settings import ENGINE, SAMPLING
from .completions import complete_constraint, complete_draft, complete_engine, complete_model
from .help import Helped, summary
from .option_types import ByteSize, DraftTokens, Number, TemplateName, Text, Whole

F = TypeVar("F", bound=Callable[..., Any])

COMPLETION = "_TERMCHAT_COMPLETE"
"""The variable by which a shell asks how a line that is being typed can go on (click's name for it)."""


class Section(click.Option):
    """An option that is listed under a heading of the help text."""

    def __init__(self, *arguments: Any, section: str = "Other", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.section = section


class SectionedCommand(Helped):
    """A command whose options are listed in sections. What cannot be an option is text, dash or not."""

    @property
    def takes_text(self) -> bool:
        """Whether it has an argument in anybody's own words."""
        return any(isinstance(each, click.Argument) and isinstance(each.type, Text) for each in self.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put text that begins with a dash behind `--`, with the other arguments."""
        names = names_of(self.get_params(ctx))
        if self.takes_text and not ctx.resilient_parsing:
            args = apart(args, names)
        return super().parse_args(ctx, without_sign(args, names))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section; the one of options without a heading comes last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Other"), []).append(record)
        for name in sorted(sections, key=lambda name: name == "Other"):
            with formatter.section(name):
                formatter.write_dl(sections[name])


class CommandGroup(Helped, click.Group):
    """A command with commands below it, one of which must be named."""

    command_class = SectionedCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say which commands there are if none is named."""
        if not args and not ctx.resilient_parsing:
            ctx.fail(f"{ctx.info_name} needs a command: {', '.join(self.commands)}")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say which commands there are if it is none of them."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            meant = of_group(args[0], self.commands)
            known = did_you_mean(args[0] if meant is None else meant, self.commands)
            ctx.fail(f"{ctx.info_name} has no command {shown(args[0])}; {known}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List all commands, each with the whole of what it does."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(command)) for name, command in self.commands.items()])


def names_of(parameters: Iterable[click.Parameter]) -> dict[str, click.Option]:
    """The options by each of their names."""
    return {name: each for each in parameters if isinstance(each, click.Option) for name in each.opts}


def without_sign(args: Sequence[str], names: Mapping[str, click.Option]) -> list[str]:
    """`-n=4` as `-n4`: to click the sign would be a part of the value."""
    plain: list[str] = []
    waiting = iter(args)
    for arg in waiting:
        if arg == "--":
            return [*plain, arg, *waiting]
        place = _value_place(arg, names)
        signed = place and arg[place : place + 1] == "=" and arg[place + 1 :]
        plain.append(arg[:place] + arg[place + 1 :] if signed else arg)
        if _wants_value(arg, names):
            plain += islice(waiting, 1)
    return plain


def apart(args: Sequence[str], names: Mapping[str, click.Option]) -> list[str]:
    """The options first, then `--` and the rest in order. click.UsageError: one could be either.

    An option is one word. Behind a dash, a blank shows that the argument is a sentence, unless what comes
    before the blank is the name of an option with its value: --stop="a b", -s"Be brief".
    """
    options: list[str] = []
    rest: list[str] = []
    unclear: list[str] = []
    waiting = list(args)
    while waiting:
        arg = waiting.pop(0)
        if arg == "--":
            rest += waiting
            break
        if arg[:1] != "-" or arg == "-":
            rest.append(arg)
            continue
        if any(char.isspace() for char in arg):
            kind = _with_blanks(arg, names)
            if kind == "text":
                rest.append(arg)
                continue
            if kind == "unclear":
                unclear.append(arg)
        options.append(arg)
        if _wants_value(arg, names) and waiting:
            options.append(waiting.pop(0))
    if unclear and not rest:  # beside a prompt it can only be an option
        raise click.UsageError(
            f"{unclear[0]!r} can be a text or the option {unclear[0][:2]}; put -- in front of a text, "
            "or a blank behind an option"
        )
    return [*options, "--", *rest] if rest else options


def _with_blanks(arg: str, names: Mapping[str, click.Option]) -> Literal["option", "text", "unclear"]:
    """What an argument is that begins with a dash and holds a blank."""
    name, sign, _ = arg.partition("=")
    if arg.startswith("--"):
        return "option" if sign and not any(char.isspace() for char in name) else "text"
    option, value = names.get(arg[:2]), arg[2:]
    return "text" if option is None or option.is_flag or value[0].isspace() else "unclear"


def _wants_value(arg: str, names: Mapping[str, click.Option]) -> bool:
    """Whether the next argument is the value of this option."""
    if arg.startswith("--"):
        return "=" not in arg and arg in names and not names[arg].is_flag
    return _value_place(arg, names) == len(arg)


def _value_place(arg: str, names: Mapping[str, click.Option]) -> int:
    """Where in an argument such as `-yn4` a value begins, if one follows its letters; 0: none does."""
    if arg[:1] != "-" or arg.startswith("--"):
        return 0
    for place, letter in enumerate(arg[1:], 2):
        option = names.get(f"-{letter}")
        if option is None:
            return 0
        if not option.is_flag:
            return place
    return 0


def options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Several option decorators as one; they are listed in this order."""

    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


def option(section: str, *names: str, **settings: Any) -> Callable[[F], F]:
    """An option of a section."""
    return click.option(*names, cls=Section, section=section, **settings)


model_options = options(
    option(
        "Model",
        "-m",
        "--model",
        metavar="NAME|PATH",
        shell_complete=complete_model,
        help="A known model (see `termchat models list --all`), a GGUF file or a safetensors folder, or "
        "hf:OWNER/REPOSITORY[:Q4_K_M|FILE|REVISION] of the Hugging Face Hub.",
    ),
    option("Model", "-y", "--yes", is_flag=True, help="Download the model without asking."),
)

system_option = option(
    "Prompt",
    "-s",
    "--system",
    type=Text(),
    metavar="TEXT",
    help="System prompt: how the model should behave.",
)
raw_option = option(
    "Prompt", "--raw", is_flag=True, help="Continue the text as it is, without the model's chat template."
)


def setting(section: str, name: str, help: str, flags: Sequence[str] = (), **form: Any) -> Callable[[F], F]:
    """The option that goes over a setting of that name; its help is the setting's."""
    flags = flags or (f"--{name.replace('_', '-')}",)
    text = f"{help[0].upper()}{help[1:]}." + (" Can be given several times." if form.get("multiple") else "")
    return option(section, *flags, name, help=text, **form)


SAMPLING_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "temperature": {"flags": ("-t", "--temperature"), "type": Number(), "metavar": "T"},
    "top_k": {"type": Whole(), "metavar": "K"},
    "top_p": {"type": Number(), "metavar": "P"},
    "min_p": {"type": Number(), "metavar": "P"},
    "repetition_penalty": {"type": Number(), "metavar": "X"},
    "presence_penalty": {"type": Number(), "metavar": "X"},
    "frequency_penalty": {"type": Number(), "metavar": "X"},
    "seed": {"type": Whole(), "metavar": "N"},
    "max_tokens": {"flags": ("-n", "--max-tokens"), "type": Whole(), "metavar": "N"},
    "stop": {"type": Text(), "multiple": True, "metavar": "TEXT"},
}
"""Options that become fields of SamplingParams of the same name."""

ENGINE_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "quantization": {"flags": ("--quantize",), "metavar": "FORMAT", "shell_complete": complete_engine},
    "backend": {"metavar": "NAME", "shell_complete": complete_engine},
    "device": {"metavar": "NAME"},
    "threads": {"type": Whole(), "metavar": "N"},
    "context_length": {"type": Whole(), "metavar": "N"},
    "kv_dtype": {"metavar": "f16|bf16|int8", "shell_complete": complete_engine},
    "kv_memory": {"type": ByteSize(), "metavar": "SIZE"},
    "exact": {"flags": ("--exact/--no-exact",), "default": None},
    "tensor_parallel": {"type": Whole(), "metavar": "N"},
    "pipeline_parallel": {"type": Whole(), "metavar": "N"},
}
"""Options that become fields of EngineConfig of the same name."""

sampling_options = options(
    *(setting("Sampling", name, SAMPLING[name], **form) for name, form in SAMPLING_OPTIONS.items())
)
engine_options = options(
    *(setting("Engine", name, ENGINE[name], **form) for name, form in ENGINE_OPTIONS.items())
)

DRAFT_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "draft_model": {
        "flags": ("--draft",),
        "metavar": "NAME|PATH|ngram|none",
        "shell_complete": complete_draft,
    },
    "draft_tokens": {"type": DraftTokens(), "metavar": "K|auto"},
}
"""Options that become fields of EngineConfig, too, for commands that have replies made."""

constraint_options = options(
    *(
        setting("Sampling", name, help, metavar=metavar, type=Text(), shell_complete=complete_constraint)
        for (name, help), metavar in zip(CONSTRAINTS.items(), ("S", "R", "G"), strict=True)
    )
)
"""Options that say what a reply keeps to."""

draft_options = options(
    *(setting("Engine", name, ENGINE[name], **form) for name, form in DRAFT_OPTIONS.items())
)

template_option = setting(
    "Prompt",
    "template",
    ENGINE["template"],
    type=TemplateName(),
    metavar="NAME|FILE",
    shell_complete=complete_engine,
)
"""For commands that give a model messages."""

logprobs_option = option(
    "Output",
    "--logprobs",
    type=Whole(),
    metavar="K",
    help="In JSON also the log-probability of each token, and the K (0 to 20) most likely in its place.",
)
"""A field of SamplingParams, too, but no setting: it is about what comes out."""

json_option = option("Output", "--json", "as_json", is_flag=True, help="JSON on standard output.")


def given(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Those of the named options that the user has set."""
    return {name: values[name] for name in names if values.get(name) is not None and values[name] != ()}
