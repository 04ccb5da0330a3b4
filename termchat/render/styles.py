"""The style names of rows in the colours of a theme."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.color import Color

_SYNTAX = (
    *("keyword", "string", "number", "comment", "function", "type", "constant", "builtin", "decorator"),
    *("operator", "inserted", "deleted"),
)
_FAINT = ("chat-muted", "chat-thinking", "syntax-comment")


def text_styles(variables: Mapping[str, str]) -> dict[str, Style]:
    """Return the style words that rows use, from the theme variables of an app (see `termchat.themes`)."""
    block = Style(bgcolor=Color.parse(variables["syntax-background"]).rich_color)
    heading = _ink(variables, "chat-heading") + Style(bold=True)
    muted = _ink(variables, "chat-muted")
    return {
        "strong": Style(bold=True),
        "em": Style(italic=True),
        "strike": Style(strike=True),
        "head": Style(bold=True),
        "code": _ink(variables, "chat-code"),
        "link": _ink(variables, "chat-link") + Style(underline=True),
        "url": muted,
        "quote": muted,
        "rule": muted,
        "muted": muted,
        "bar": muted,
        "label": muted + Style(italic=True),
        "block": block,
        "marker": _ink(variables, "chat-marker"),
        "user": _ink(variables, "chat-user") + Style(bold=True),
        "assistant": _ink(variables, "chat-assistant") + Style(bold=True),
        "thinking": _ink(variables, "chat-thinking") + Style(italic=True),
        "error": _ink(variables, "error"),
        "heading1": heading + Style(underline=True),
        **{f"heading{level}": heading for level in range(2, 7)},
        **{word: _ink(variables, f"syntax-{word}") for word in _SYNTAX},
    }


def _ink(variables: Mapping[str, str], name: str) -> Style:
    color = Color.parse(variables[name])
    if color.ansi == -1 and name in _FAINT:
        return Style(dim=True)  # the terminal's text colour alone would not set it off
    return Style(color=color.rich_color)
