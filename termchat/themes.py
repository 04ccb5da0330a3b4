"""Colour themes: TOML files, checked key by key, as Textual themes.

A file has `name`, `dark`, optionally `ansi` (the terminal's own 16 colours instead of RGB), and the tables
[colors], [syntax], [chat] and [panel]. In [colors] primary, foreground and background must be given; whatever
else is left out is derived from them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from .errors import did_you_mean
from .files import TextError, TomlError, read_toml

MAX_FILE_BYTES = 64 * 1024
MAX_FILES = 200  # in a folder
PALETTE_SIZE = 8
ROW_PERCENT, SELECTION_PERCENT = 25, 30
"""How much of the primary colour there is behind the cursor's row and behind selected text."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
REQUIRED = ("primary", "foreground", "background")
_COLORS = (
    *("primary", "secondary", "accent", "foreground", "background", "surface", "panel", "boost"),
    *("success", "warning", "error"),
)
_SYNTAX = (
    *("keyword accent", "string success", "number warning", "comment muted", "function primary"),
    *("type secondary", "constant warning", "builtin secondary", "decorator accent", "operator foreground"),
    *("inserted success", "deleted error", "background surface"),
)
_CHAT = (
    *("user secondary", "assistant primary", "thinking muted", "muted muted", "code accent", "link primary"),
    *("heading primary", "marker accent"),
)
_PANEL = ("spark-low success", "spark-high error", "kv-shared foreground", "kv-cached muted")
_PALETTES = {"panel": ("kv",)}
DERIVED = {
    table: dict(entry.split() for entry in entries)
    for table, entries in (("syntax", _SYNTAX), ("chat", _CHAT), ("panel", _PANEL))
}
"""What may be left out, besides `panel.kv`, and the colour that it is then; `muted` is a paler foreground."""

TABLES = {"colors": _COLORS} | {table: (*keys, *_PALETTES.get(table, ())) for table, keys in DERIVED.items()}


class ThemeError(ValueError):
    """A theme file can't be used: one sentence that names the file and the key."""


def load_themes(folders: Iterable[Path]) -> tuple[dict[str, Theme], list[str]]:
    """Return the themes of all `*.toml` files by name, and a sentence for each file that can't be used.

    A theme of a later folder takes the place of one of the same name. A folder that isn't there has none.
    """
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    for folder in folders:
        try:
            files = sorted(folder.glob("*.toml"))
        except OSError as error:
            problems.append(f"themes in {folder} can't be listed: {error.strerror}")
            continue
        if len(files) > MAX_FILES:
            problems.append(f"{folder} has {len(files)} theme files; only the first {MAX_FILES} are read")
        for file in files[:MAX_FILES]:
            try:
                theme = load_theme(file)
            except ThemeError as error:
                problems.append(str(error))
            else:
                themes[theme.name] = theme
    return themes, problems


def load_theme(file: Path) -> Theme:
    """Return the theme of one file, or raise `ThemeError`."""
    try:
        if not os.path.isfile(file):
            raise ThemeError(f"{file} is not a file")
        data = read_toml(file, MAX_FILE_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise ThemeError(f"{file} has more than {MAX_FILE_BYTES} bytes, too many for a theme") from error
        raise ThemeError(f"{file} can't be read: {error.strerror}") from error
    except TomlError as error:
        raise ThemeError(f"{file} is not TOML: {error.reason}") from error
    except TextError as error:
        raise ThemeError(f"{file} {error}") from error
    try:
        return parse_theme(data)
    except ThemeError as error:
        raise ThemeError(f"{file}: {error}") from error


def parse_theme(data: Mapping[str, Any]) -> Theme:
    """Return the theme a file's content describes, or raise `ThemeError` naming the key."""
    _check_keys("", data, ("name", "dark", "ansi", *TABLES))
    name = data.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ThemeError("name must be 1 to 40 lower-case letters, digits and dashes")
    dark, ansi = data.get("dark"), data.get("ansi", False)
    if not isinstance(dark, bool):
        raise ThemeError("dark must be true or false")
    if not isinstance(ansi, bool):
        raise ThemeError("ansi must be true or false")
    tables = {table: _table(table, data.get(table, {}), ansi) for table in TABLES}
    colors = tables["colors"]
    for key in REQUIRED:
        if key not in colors:
            raise ThemeError(f"colors.{key} is missing")
    theme = Theme(name, colors.pop("primary"), dark=dark, ansi=ansi)
    for key, color in colors.items():
        setattr(theme, key, color)
    given = {
        f"{table}-{key}": color
        for table in TABLES
        if table != "colors"
        for key, color in tables[table].items()
    }
    theme.variables = variable_defaults(theme) | _scroll_bars(theme) | given
    if ansi:  # Textual's own style sheets need these
        theme.variables |= BUILTIN_THEMES["ansi-dark" if dark else "ansi-light"].variables
    return theme


def _check_keys(table: str, data: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in data:
        if key not in known:
            where = f"[{table}]" if table else "the file"
            raise ThemeError(f"{key!r} is not a key of {where}; {did_you_mean(key, known, '{}')}")


def _table(table: str, data: object, ansi: bool) -> dict[str, str]:
    """Return the colours of a table by key; the palette as kv-0 to kv-7."""
    if not isinstance(data, dict):
        raise ThemeError(f"{table} must be a table, not {_kind(data)}")
    _check_keys(table, data, TABLES[table])
    colors: dict[str, str] = {}
    for key, value in data.items():
        if key == "kv":
            if not isinstance(value, list) or len(value) != PALETTE_SIZE:
                raise ThemeError(f"{table}.kv must be a list of {PALETTE_SIZE} colours")
            for index, color in enumerate(value):
                colors[f"kv-{index}"] = _color(f"{table}.kv[{index}]", color, ansi)
        else:
            colors[key] = _color(f"{table}.{key}", value, ansi, see_through=key == "boost")
    return colors


def _color(key: str, value: object, ansi: bool, see_through: bool = False) -> str:
    if not isinstance(value, str):
        raise ThemeError(f"{key} must be a colour such as {_example(ansi)!r}, not {_kind(value)}")
    try:
        color = Color.parse(value)
    except (ColorParseError, ValueError) as error:
        raise ThemeError(f"{key}: {value[:40]!r} is not a colour; write {_example(ansi)!r}") from error
    if color.auto or (color.a != 1 and not see_through):
        raise ThemeError(f"{key}: {value[:40]!r} is not a solid colour")
    if ansi != (color.ansi is not None):
        kind = "of the 16 of the terminal" if ansi else "an RGB colour"
        raise ThemeError(f"{key}: {value[:40]!r} is not {kind}; write {_example(ansi)!r}")
    return value


def _example(ansi: bool) -> str:
    return "ansi_bright_blue" if ansi else "#4477aa"


def _kind(value: object) -> str:
    return {dict: "a table", list: "a list", str: "text", bool: "true or false"}.get(
        type(value), f"a {type(value).__name__}"
    )


# Okabe and Ito's colours, which stay apart for colour-blind readers, without their black.
_KV_RGB = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999")
_KV_ANSI = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_blue", "bright_yellow")


def variable_defaults(theme: Theme) -> dict[str, str]:
    """Return every variable of our own, derived from a theme's colours.

    `App.get_theme_variable_defaults` returns this for the current theme, so that style sheets work with
    Textual's built-in themes too.
    """
    foreground, muted = _foreground(theme)
    primary = theme.primary
    colors = {
        "primary": primary,
        "foreground": foreground,
        "muted": muted,
        "surface": theme.surface or theme.background or ("#1e1e1e" if theme.dark else "#f5f5f5"),
    }
    for name in ("secondary", "accent", "success", "warning", "error"):
        colors[name] = getattr(theme, name) or primary
    palette = [f"ansi_{name}" for name in _KV_ANSI] if theme.ansi else _KV_RGB
    return {
        **{f"{table}-{key}": colors[name] for table, keys in DERIVED.items() for key, name in keys.items()},
        **{f"panel-kv-{index}": color for index, color in enumerate(palette)},
    }


def marks(variables: Mapping[str, str], *, few: bool, colours: bool = True) -> dict[str, str]:
    """Return the variables of what is marked: the cursor's row in a list, and selected text.

    variables: those of the theme. few: there are but the 16 colours of the terminal, in which a shade cannot
    be relied on: selected text is in reverse video, the cursor's row in a solid colour (Textual's lists
    cannot be drawn in reverse video). colours: whether the user wants any.
    """
    primary, ink, ground = (variables[name] for name in ("primary", "foreground", "background"))
    row = {"foreground": ink, "background": f"{primary} {ROW_PERCENT}%", "text-style": "bold"}
    selection = {"foreground": "transparent", "background": f"{primary} {SELECTION_PERCENT}%"}
    if few:
        solid = Color.parse(primary)
        dark, light = ("black", "white") if solid.ansi is None else ("ansi_black", "ansi_bright_white")
        row["foreground"] = dark if solid.brightness > 0.5 else light
        row["background"] = primary
        row["text-style"] = "bold" if colours else "bold underline"
        selection = {"foreground": ink, "background": ground}
    return {
        **{f"block-cursor-{part}": value for part, value in row.items()},
        **{f"block-cursor-blurred-{part}": value for part, value in row.items()},
        **{f"screen-selection-{part}": value for part, value in selection.items()},
        "selection-text-style": "reverse" if few else "none",
    }


def contrast(one: Color, other: Color) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.2)."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in color.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _scroll_bars(theme: Theme) -> dict[str, str]:
    """Return the colour of what scroll bars run in: Textual's own is as dark as a theme gets."""
    if theme.panel is None:
        return {}
    return {f"scrollbar-background{state}": theme.panel for state in ("", "-hover", "-active")}


def _foreground(theme: Theme) -> tuple[str, str]:
    """Return the colour of text and of text that matters less."""
    if theme.ansi:
        return theme.foreground or "ansi_default", "ansi_default"
    background = Color.parse(theme.background or ("#121212" if theme.dark else "#efefef"))
    foreground = Color.parse(theme.foreground) if theme.foreground else background.inverse
    return foreground.hex, foreground.blend(background, 0.3).hex
