"""`termchat completion`: completion of commands, options, models and conversations in the shell."""

from __future__ import annotations

import click

from .console import Console
from .options import COMPLETION, SectionedCommand

INSTALL = {
    "bash": 'eval "$(termchat completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(termchat completion zsh)"   in ~/.zshrc',
    "fish": "termchat completion fish | source   in ~/.config/fish/config.fish",
}


@click.command(
    cls=SectionedCommand, help="Print a script for the shell.\n\n\b\n" + "\n".join(INSTALL.values())
)
@click.argument("shell", type=click.Choice(list(INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click completes in these shells"
    console: Console = ctx.obj
    # A name with a colon (hf:..., ollama:...) is one word: bash takes it apart otherwise.
    before = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n" if shell == "bash" else ""
    source = kind(ctx.find_root().command, {}, "termchat", COMPLETION).source_vars()
    console.output.write(before + kind.source_template % source + "\n")
