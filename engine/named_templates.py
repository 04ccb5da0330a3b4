"""Chat templates for models that come without one: ours, by name, or a file of the user's."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from .types import EngineError, shown

_FOLDER = Path(__file__).with_name("templates")
_SUFFIX = ".jinja"
MAX_TEMPLATE = 1 << 16
"""Characters of a template; the longest of llama.cpp's collection has 22,000."""


@cache
def template_names() -> tuple[str, ...]:
    """The names of our own templates, in order."""
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in os.listdir(_FOLDER) if name.endswith(_SUFFIX)))


@cache
def named_template(name: str) -> str:
    """One of our own templates. KeyError: there is none of that name."""
    if name not in template_names():
        raise KeyError(name)
    return (_FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def is_template(text: str) -> bool:
    """Whether a text is a template itself, not what one is called: it says something in Jinja."""
    return "{{" in text or "{%" in text


def check_template(chosen: object) -> None:
    """ValueError for what is no template, nor the name of one, nor looks like a file: the nearest names."""
    if not isinstance(chosen, str) or not chosen:
        raise ValueError(f"template must be a name or the path of a file, not {shown(chosen)}")
    if (
        is_template(chosen)
        or chosen in template_names()
        or os.sep in chosen
        or "." in chosen
        or os.path.lexists(chosen)
    ):
        return
    import difflib  # only mistakes need it

    near = difflib.get_close_matches(chosen.lower()[:100], template_names(), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    known = ", ".join(template_names())
    raise ValueError(
        f"template must be one of {known}, or a file with a Jinja template; {hint}not {shown(chosen)}"
    )


def read_template(chosen: str) -> str:
    """The Jinja text of a template: that text, else ours of that name, else the file at that path.

    EngineError(template): the file can't be read, is no text, or is too long for a template.
    """
    if is_template(chosen):
        return chosen
    from .loading.files import as_written, decoded, read_bytes  # the names alone are asked for without

    if chosen in template_names():
        return named_template(chosen)
    path = as_written(chosen)
    try:
        data = read_bytes(path, 4 * MAX_TEMPLATE)
        text = None if data is None else decoded(data, path)
    except EngineError as error:
        raise EngineError("template", f"the chat template {error.message}") from None
    if text is None:
        raise EngineError("template", f"the chat template {path} does not exist")
    if not text.strip():
        raise EngineError("template", f"the chat template {path} is empty")
    return text
