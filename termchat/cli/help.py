"""Help texts: on the console's output, on terminals of any width, whatever the interpreter leaves out."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.formatting import wrap_text

NARROW = 60
"""Columns; with fewer there is no room for a name and its description side by side."""

NARROWEST = 20
"""What is laid out for even fewer columns could not be read."""

LONGEST_SUMMARY = 100
"""Characters that are said of a command in a list of them."""


class Formatter(click.HelpFormatter):
    """Click's layout; on a narrow terminal each description stands below its name.

    What is there to be copied, such as an example, is one line all the same.
    """

    def __init__(self, **settings: Any) -> None:
        import shutil

        super().__init__(**settings)
        self.narrow = (columns := shutil.get_terminal_size().columns) < NARROW
        if self.narrow:
            self.width = max(NARROWEST, columns - 1)

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """How a command is called."""
        if not self.narrow:
            super().write_usage(prog, args, prefix)
            return
        head = "Usage: " if prefix is None else prefix
        self._hanging(f"{prog} {args}", head, " " * len(head))

    def write_heading(self, heading: str) -> None:
        """What a section is about."""
        if not self.narrow:
            super().write_heading(heading)
            return
        margin = " " * self.current_indent
        self._hanging(f"{heading}:", margin, margin)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Names, and what is said of each."""
        if not self.narrow:
            super().write_dl(rows, col_max, col_spacing)
            return
        margin = " " * self.current_indent
        for name, text in rows:
            self._hanging(name, margin, f"{margin}  ")
            if text:
                self._hanging(text, f"{margin}  ", f"{margin}  ")

    def _hanging(self, text: str, first: str, rest: str) -> None:
        self.write(wrap_text(text, self.width, first, rest) + "\n")


class _Context(click.Context):
    formatter_class = Formatter


class Helped(click.Command):
    """Writes its help text to the console's output, where a closed pipe or full disk is dealt with."""

    context_class = _Context

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        if not settings.get("help") and settings.get("callback") is not None:
            settings["help"] = _docstring(settings["callback"])
        super().__init__(*arguments, **settings)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Click's own option, writing elsewhere."""
        help_option = super().get_help_option(ctx)
        if help_option is not None:
            help_option.callback = _show_help
        return help_option


def summary(command: click.Command) -> str:
    """What a command does, for a list of commands."""
    return command.get_short_help_str(LONGEST_SUMMARY)


def _show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.obj.output.write(ctx.get_help() + "\n")
        ctx.exit()


def _docstring(function: Callable[..., Any]) -> str | None:
    """The docstring of a function; out of its source, where the interpreter was told to drop it (-OO)."""
    if function.__doc__ is not None:
        return inspect.cleandoc(function.__doc__)
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError):  # installed without sources
        return None
    return ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
