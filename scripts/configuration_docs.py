"""Writes the tables of docs/configuration.md, from the code that checks what they list.

python scripts/configuration_docs.py

Each table stands between `<!-- name -->` and `<!-- end -->`; the rest of the page is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from engine import EngineConfig, SamplingParams
from termchat.registry_file import MODEL_KEYS, SOURCE_KEYS
from termchat.sampling import FALLBACK
from termchat.settings import ENGINE, OPTIONS, SAMPLING, allowed
from termchat.themes import DERIVED, REQUIRED, TABLES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    heads = list(heads)
    lines = [f"| {' | '.join(line)} |\n" for line in (heads, *rows)]
    lines.insert(1, f"|{'---|' * len(heads)}\n")
    return "".join(lines)


def code(*names: object) -> str:
    """Names or values as they are written."""
    return ", ".join(f"`{str(name).lower() if isinstance(name, bool) else name}`" for name in names)


def options() -> str:
    """The settings of termchat's own."""
    forms = {name: code(*option.allowed) for name, option in OPTIONS.items() if option.allowed}
    forms |= {name: code(True, False) for name, option in OPTIONS.items() if isinstance(option.default, bool)}
    return table(
        ("key", "default", "may be", "what it is for"),
        (
            (
                code(name),
                "" if option.default is None else code(option.default),
                forms.get(name, "a text"),
                option.help,
            )
            for name, option in OPTIONS.items()
        ),
    )


def readable(rule: str) -> str:
    """A rule with its large numbers as powers of two."""

    def power(found: re.Match[str]) -> str:
        number = int(found[0])
        return f"2^{number.bit_length()} - 1" if number & 1 else f"2^{number.bit_length() - 1}"

    return re.sub(r"\d{7,}", power, rule)


def of_engine(name: str, helps: Mapping[str, str], kind: Any, known: Mapping[str, object]) -> str:
    """The settings that become fields of a class of the engine. known: defaults of termchat's own."""
    defaults = {field.name: field.default for field in fields(kind)} | known
    return table(
        ("key", "default", "must be", "what it is for"),
        (
            (
                code(key),
                "" if defaults[key] in (None, ()) else code(defaults[key]),
                readable(allowed(name, key)),
                text,
            )
            for key, text in helps.items()
        ),
    )


def sources() -> str:
    """The kinds of sources of a model."""
    return table(("keys", "what it is"), ((code(*keys), text) for keys, text in SOURCE_KEYS.items()))


def colours() -> str:
    """The tables of a theme, each key with the colour that it is when it is left out."""

    def entry(part: str, key: str) -> str:
        other = DERIVED.get(part, {}).get(key)
        if other is None:
            return code(key) + (" (must be there)" if part == "colors" and key in REQUIRED else "")
        return f"{code(key)} ({'a paler foreground' if other == 'muted' else other})"

    return table(
        ("table", "keys, and the colours that they are when they are left out"),
        ((code(f"[{part}]"), ", ".join(entry(part, key) for key in keys)) for part, keys in TABLES.items()),
    )


TABLE_OF: Mapping[str, Callable[[], str]] = {
    "options": options,
    "sampling": lambda: of_engine("sampling", SAMPLING, SamplingParams, FALLBACK),
    "engine": lambda: of_engine("engine", ENGINE, EngineConfig, {}),
    "models": lambda: table(("key", "what it is"), ((code(key), text) for key, text in MODEL_KEYS.items())),
    "sources": sources,
    "themes": colours,
}


def page(text: str) -> str:
    """The page with its tables made anew."""
    return re.sub(
        r"(<!-- (?!end)(\w+) -->\n).*?(?=<!-- end -->)",
        lambda found: f"{found[1]}\n{TABLE_OF[found[2]]()}\n",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
