"""What the values of options can be, beyond what click knows."""

from __future__ import annotations

import re
from typing import Any

import click

from ..files import LARGEST_TEXT, TextError, expanded
from ..given_file import is_read_once, read_given
from .stdin import argument_text


class Text(click.ParamType[str]):
    """Text for the model: bytes that are no UTF-8 are replaced, with a note."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The argument as valid Unicode."""
        name = param.human_readable_name if param is not None else "an argument"
        note = ctx.obj.messages.note if ctx is not None and ctx.obj is not None else lambda message: None
        return argument_text(value, name if isinstance(param, click.Argument) else f"--{name}", note)


class Whole(click.IntRange):
    """A whole number, in a range if it is given one."""

    name = "whole number"


class Number(click.types.FloatParamType):
    """A number, which may have decimals."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click; half of Europe writes 0,5."""
        if isinstance(value, str) and "," in value:
            self.fail(f"{value!r} is not a valid number; decimals follow a point: 0.5", param, ctx)
        return float(super().convert(value, param, ctx))


class TemplateName(click.ParamType[str]):
    """The name of a chat template, or its file; the text of one that can be read only once, read here."""

    name = "template"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or the text. A file can be read again and stays a name, which is shown."""
        from engine import EngineError, check_template, is_template, read_template

        path = expanded(value)
        if not is_read_once(path):
            try:
                check_template(value)
                read_template(value)
            except (ValueError, EngineError) as error:
                self.fail(str(error), param, ctx)
            return str(value)
        try:
            read = ctx.obj.read_given if ctx is not None and ctx.obj is not None else read_given
            text = read(path, LARGEST_TEXT).text
        except OSError as error:
            self.fail(f"{value} cannot be read: {error.strerror}", param, ctx)
        except TextError as error:
            self.fail(f"{value} {error}", param, ctx)
        if not is_template(text):
            self.fail(f"{value} holds no chat template: nothing of it is Jinja", param, ctx)
        return text


class ByteSize(click.ParamType[int]):
    """A number of bytes, with or without a unit: 1000000, 512MB, 2GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes as an integer; k, M and G are decimal, Ki, Mi and Gi binary."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(?:([kmg])(i?)b?|b)?", value.strip().lower())
        if found is None:
            self.fail(
                f"{value!r} is no size; give bytes, or a number with kB, MB, GB, KiB, MiB or GiB", param, ctx
            )
        base = 1024 if found[3] else 1000
        return int(float(found[1]) * base ** ("kmg".index(found[2]) + 1 if found[2] else 0))


class DraftTokens(click.ParamType[int | str]):
    """A number of tokens, or auto."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The number, whose range the engine checks, or auto."""
        if isinstance(value, int):
            return value
        if value == "auto":
            return "auto"
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            self.fail(f"{value!r} is no number of tokens; give one, or auto", param, ctx)
        return int(value)
