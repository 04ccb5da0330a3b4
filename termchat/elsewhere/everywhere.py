"""All programs whose models are looked for, and a model of theirs by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..hub import PREFIX
from .found import Finder, Found
from .gguf_folders import llama_cpp, lm_studio
from .hub_cache import hub_cache
from .ollama import ollama

FINDERS: Mapping[str, Finder] = {
    "hf": hub_cache,
    "lmstudio": lm_studio,
    "ollama": ollama,
    "llamacpp": llama_cpp,
}
"""By what stands before the colon."""


def everywhere() -> Iterator[Found]:
    """The models of all programs."""
    for finder in FINDERS.values():
        yield from finder()


def of_program(name: str) -> list[Found]:
    """The models that SCHEME:NAME may mean: the one of that name, else those it is short for.

    A tag that is not said is `latest`, as for Ollama; a file may be named without its folders or its ending.
    """
    scheme, _, wanted = name.partition(":")
    return best(list(FINDERS[scheme]()), wanted) if scheme in FINDERS else []


def short_for(name: str) -> list[Found]:
    """The models of all programs that a name without a program may mean."""
    return best([each for each in everywhere() if not each.problem], name)


def best(found: list[Found], wanted: str) -> list[Found]:
    """Those that a name means: exactly, else as a short form, without regard to case."""
    for alike in (_same, _short):
        meant = [each for each in found if alike(each, wanted.lower())]
        if meant:
            return meant
    return []


def _same(found: Found, wanted: str) -> bool:
    return found.short.lower() == wanted


def _short(found: Found, wanted: str) -> bool:
    short = found.short.lower()
    if found.name.startswith("ollama:"):
        return short == f"{wanted}:latest"
    last = short.rpartition("/")[2]
    if found.name.startswith(PREFIX):
        return wanted in (last, last.partition(":")[0])
    return wanted in (last, last.removesuffix(".gguf"), short.removesuffix(".gguf"))
