"""`termchat quality`: what arithmetic and low precision of a model cost, in figures and in words."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..settings import ENGINE
from ..units import number, size
from .completions import complete_model
from .console import Console
from .errors import OK, CliError
from .options import (
    ENGINE_OPTIONS,
    SectionedCommand,
    given,
    json_option,
    option,
    options,
    setting,
)
from .progress import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine import EngineConfig

    from ..quality import Divergence, Positions, Text
    from .serving import Choice

NONE = "none"
"""Against no other model: against its own file in float arithmetic."""

OF_MODEL = ("quantization", "kv_dtype")
"""Options whose cost is measured: they are the model's, not those of what it is measured against."""

OF_BOTH = ("backend", "device", "threads")


@click.command(cls=SectionedCommand)
@click.argument("model", shell_complete=complete_model)
@option(
    "Quality",
    "--against",
    default=NONE,
    metavar="none|MODEL",
    shell_complete=complete_model,
    help="What to compare with: none is the model's own file in float arithmetic; a model, one with the same "
    "vocabulary, as it is without options.",
)
@option(
    "Quality",
    "--text",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A text to read, instead of the prose, the code and the chat that come with termchat.",
)
@option("Model", "-y", "--yes", is_flag=True, help="Download models without asking.")
@json_option
@options(*(setting("Engine", name, ENGINE[name], **ENGINE_OPTIONS[name]) for name in (*OF_MODEL, *OF_BOTH)))
@click.pass_obj
def quality(console: Console, /, **values: Any) -> int:
    """Measure what low precision costs: how far MODEL is from float arithmetic, or from another model.

    Both read the same text, and what they expect after each token is compared: the Kullback-Leibler
    divergence (KL, in nats; 0 is no difference), how often the likeliest token is the same one, and the
    perplexity of each.
    """
    import asyncio

    from ..quality import bundled, joined, read_text
    from .serving import choose, load_setup

    if values["file"] is None:
        texts = bundled()
    else:
        with console.waiting(values["file"]):
            texts = [read_text(values["file"])]
    setup, yes, name = load_setup(console), values["yes"], values["against"]
    flags = given(values, (*OF_MODEL, *OF_BOTH))
    choice = _for_windows(choose(console, setup, values["model"], yes=yes, flags=flags))
    if name == NONE:
        exact = replace(choice.config, quantization="none", kv_dtype="float32", dtype="float32")
        against, other = None, replace(choice, config=exact)
    else:
        other = _for_windows(choose(console, setup, name, yes=yes, flags=given(values, OF_BOTH)))
        against = other.model.name
    _check_memory(choice, other)
    parts = asyncio.run(_compare(console, choice, other, texts))
    found = {text: positions.summary() for text, positions in parts.items()}
    whole = joined(list(parts.values())).summary()
    if values["as_json"]:
        result = {"model": choice.model.name, "against": against}
        result |= {name: getattr(choice.config, name) for name in OF_MODEL}
        result |= {**asdict(whole), "verdict": whole.verdict}
        console.print_json({**result, "texts": {text: asdict(figures) for text, figures in found.items()}})
        return OK
    title = f"{choice.model.name}{_precision(choice.config)}"
    console.output.write(f"{title} against {against or 'its own file in float arithmetic'}\n\n")
    console.print_table(
        [
            ["text", "tokens", "mean KL", "99 %", "largest", "same best token", "perplexity", "against"],
            *(_row(text, figures) for text, figures in found.items()),
            *([_row("all", whole)] if len(found) > 1 else []),
        ]
    )
    console.output.write(f"\n{whole.verdict}\n")
    return OK


def _for_windows(choice: Choice) -> Choice:
    """The choice with an engine that holds one window at a time."""
    from ..quality import WINDOW

    blocks = WINDOW // choice.config.block_size + 1
    config = replace(choice.config, kv_blocks=blocks, max_sequences=1, prefix_cache=False)
    return replace(choice, config=config)


def _check_memory(*choices: Choice) -> None:
    """CliError: both do not fit at once. As floats a model can be eight times as large as its file."""
    from engine import EngineError, plan_memory

    try:
        plans = [plan_memory(choice.config) for choice in choices]
    except EngineError as error:
        raise CliError(error.code, error.message) from error
    needed, free = sum(plan.weight_bytes + plan.kv_bytes for plan in plans), plans[0].free_bytes
    if needed > free:
        sizes = " and ".join(size(plan.weight_bytes + plan.kv_bytes) for plan in plans)
        raise CliError(
            "out_of_memory",
            f"both models are loaded at once and take {sizes}, but only {size(free)} are free; "
            "--against a smaller file takes less",
        )


async def _compare(
    console: Console, choice: Choice, other: Choice, texts: Sequence[Text]
) -> dict[str, Positions]:
    """Load both and have them read the texts. CliError, UserError."""
    from engine import EngineError

    from ..quality import measure, windows
    from .serving import serving

    line = ProgressLine(console.messages, every=None)
    async with serving(console, choice) as one, serving(console, other) as two:
        # A signal leaves at once, and the line of the progress goes first.
        with console.signals.calling(console.signals.leave_at_once, last=line.end), line:
            try:
                found = await windows(texts, one.engine, two.engine)
                total = f"of {len(found)} parts of the text are compared"
                return await measure(found, one.engine, two.engine, lambda done: line.show(f"{done} {total}"))
            except EngineError as error:
                raise choice.failure(error) from error


def _precision(config: EngineConfig) -> str:
    """The options whose cost this is, as far as they are not left to the model."""
    weights = "float32" if config.quantization == "none" else config.quantization
    named = {"weights": weights, "keys and values": config.kv_dtype}
    said = [f"{what} in {value}" for what, value in named.items() if value != "auto"]
    return f" ({', '.join(said)})" if said else ""


def _row(text: str, found: Divergence) -> list[str]:
    perplexities = (found.perplexity, found.against_perplexity)
    return [
        text,
        f"{found.tokens}",
        *(number(value, 5) for value in (found.kl_mean, found.kl_p99, found.kl_max)),
        f"{found.same_best:.1%}",
        *(number(value, 3) for value in perplexities),
    ]
