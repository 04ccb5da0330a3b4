"""The settings of one conversation: its system prompt and its own sampling values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Grid
from textual.widgets import Input, Static, TextArea

from ...settings import SAMPLING, check_sampling
from ..widgets.text_box import TextBox
from .dialogs import Form

HELP = {
    "temperature": "0 always takes the likeliest token",
    "top_k": "only the k likeliest tokens; 0 is off",
    "top_p": "the likeliest that make up this share",
    "min_p": "at least this share of the best one's",
    "repetition_penalty": "above 1: repeats less, once each",
    "presence_penalty": "taken once from tokens of the reply",
    "frequency_penalty": "taken for each time in the reply",
    "seed": "the same seed gives the same reply",
    "max_tokens": "longest reply, in tokens",
    "stop": "texts that end it: a|b, \\n a new line",
}
"""What is said of each setting: in at most 37 characters, which is the room at 80 columns."""

_WHOLE = ("top_k", "seed", "max_tokens")


@dataclass(frozen=True, slots=True)
class ConversationSettings:
    """What can be set."""

    system: str
    sampling: Mapping[str, Any]


def parse(name: str, text: str) -> Any:
    """The value of a setting as typed. ValueError names setting and value."""
    text = text.strip()
    if name == "stop":
        return tuple(_unescaped(part) for part in _divided(text))
    try:
        return int(text) if name in _WHOLE else float(text)
    except ValueError:
        kind = "a whole number" if name in _WHOLE else "a number"
        raise ValueError(f"{name} must be {kind}, not {text[:40]!r}") from None


def written(name: str, value: Any) -> str:
    """A value as it is typed."""
    if name == "stop":
        texts = value if isinstance(value, (list, tuple)) else [value]
        return "|".join(_escaped(str(text)) for text in texts)
    return str(value)


_ESCAPES = {"\\": "\\\\", "|": "\\|", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "s": " "}


def _escaped(text: str) -> str:
    """A text that ends the reply, as it is typed: also with blanks at its ends, and in one line."""
    ends = {0, len(text) - 1}
    parts = []
    for place, char in enumerate(text):
        if char in _ESCAPES:
            parts.append(_ESCAPES[char])
        elif char == " ":
            parts.append("\\s" if place in ends else " ")
        elif char.isprintable() or ord(char) > 0xFFFF:
            parts.append(char)
        else:
            parts.append(f"\\u{ord(char):04x}")
    return "".join(parts)


def _unescaped(written: str) -> str:
    """What a backslash stands before is itself, but for the names."""

    def sign(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] is not None else _NAMED.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", sign, written)


def _divided(written: str) -> list[str]:
    """The parts between bars that stand behind no backslash."""
    parts, behind = [""], False
    for char in written:
        if char == "|" and not behind:
            parts.append("")
            continue
        parts[-1] += char
        behind = char == "\\" and not behind
    return parts


class ConversationSettingsScreen(Form[ConversationSettings]):
    """A form. An empty field takes the default, which it shows dimly."""

    BINDINGS = [Binding("ctrl+s", "save", "save", show=False, priority=True)]
    DEFAULT_CSS = """
    ConversationSettingsScreen .dialog { width: 88; }
    ConversationSettingsScreen Grid {
        grid-size: 3; grid-columns: 18 12 1fr; grid-rows: 1; grid-gutter: 0 1; height: auto;
    }
    ConversationSettingsScreen Grid Static { height: 1; }
    ConversationSettingsScreen .help { color: $chat-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    ConversationSettingsScreen.-narrow Grid { grid-size: 2; grid-columns: 18 1fr; }
    ConversationSettingsScreen.-narrow .help { display: none; }
    ConversationSettingsScreen .dialog TextArea { height: 5; margin-bottom: 1; }
    ConversationSettingsScreen.-low .dialog TextArea { height: 2; }
    ConversationSettingsScreen #problem { color: $error; height: auto; display: none; }
    """

    def __init__(self, title: str, settings: ConversationSettings, defaults: Mapping[str, Any]) -> None:
        super().__init__(f"Settings of: {title}")
        self._settings = settings
        self._defaults = defaults

    def content(self) -> ComposeResult:
        """System prompt, then one row for each setting."""
        yield Static("System prompt", markup=False)
        yield TextBox(self._settings.system, soft_wrap=True, tab_behavior="focus")
        with Grid():
            for name in SAMPLING:
                value, default = self._settings.sampling.get(name), self._defaults.get(name)
                yield Static(name, markup=False)
                yield Input(
                    "" if value is None else written(name, value),
                    placeholder="" if default is None else written(name, default),
                    id=name,
                )
                yield Static(HELP[name], classes="help", markup=False)
        yield Static("", id="problem", markup=False)
        yield Static("^S save   tab next   esc cancel", classes="dialog-hint", markup=False)

    def action_save(self) -> None:
        """Answer, if all values are allowed."""
        try:
            sampling = {
                name: parse(name, field.value)
                for name in SAMPLING
                if (field := self.query_one(f"#{name}", Input)).value.strip()
            }
            check_sampling(sampling)
        except ValueError as error:
            problem = self.query_one("#problem", Static)
            problem.update(str(error))
            problem.display = True
            return
        self.dismiss(ConversationSettings(self.query_one(TextArea).text.strip(), sampling))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter saves too."""
        self.action_save()
