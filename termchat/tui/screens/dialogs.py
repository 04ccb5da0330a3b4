"""Small questions above the main screen. All text in them is literal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from ..widgets.text_box import TextBox

T = TypeVar("T")

DIALOG_CSS = """
Dialog { align: center middle; background: $background 60%; }
.dialog {
    width: 72; max-width: 95%; height: auto; max-height: 95%;
    background: $surface; border: round $primary 60%; padding: 1 2;
    overflow-y: auto; scrollbar-size-vertical: 1;
}
Dialog.-low .dialog { padding: 0 2; }
.dialog .dialog-title { text-style: bold; color: $foreground; height: auto; margin-bottom: 1; }
.dialog .dialog-text { height: auto; color: $text-muted; margin-bottom: 1; }
.dialog .dialog-hint { height: auto; color: $text-muted; margin-top: 1; }
.dialog OptionList { height: auto; max-height: 16; background: $surface; border: none; padding: 0; }
.dialog OptionList:focus { border: none; }
.dialog OptionList > .option-list--option { padding: 0 1; }
.dialog Input { background: $panel; border: none; padding: 0 1; height: 1; }
.dialog Input:focus { border: none; }
.dialog TextArea { background: $panel; border: none; padding: 0 1; height: 8; }
.dialog TextArea:focus { border: none; }
"""


class Dialog(ModalScreen[T | None]):
    """A box in the middle of the screen: title, text, content. Esc closes it without an answer."""

    DEFAULT_CSS = DIALOG_CSS
    # First of all, so that what is typed next goes to the screen below.
    BINDINGS = [Binding("escape", "dismiss_none", "close", show=False, priority=True)]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (70, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (26, "-high")]

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        """The box."""
        with Vertical(classes="dialog"):
            yield Static(self._title, classes="dialog-title", markup=False)
            if self._text:
                yield Static(self._text, classes="dialog-text", markup=False)
            yield from self.content()

    def content(self) -> ComposeResult:
        """What takes the answer."""
        raise NotImplementedError

    def action_dismiss_none(self) -> None:
        """Close without an answer."""
        self.dismiss(None)


class Form(Dialog[T]):
    """A dialog in which texts are written: Esc does not throw away what was changed at the first press."""

    _kept: tuple[str, ...] = ()  # the texts as they can be thrown away

    def on_mount(self) -> None:
        """Nothing is changed yet."""
        self._kept = self._texts()

    def action_dismiss_none(self) -> None:
        """Close without an answer; say first that something would be lost."""
        if (texts := self._texts()) == self._kept:
            self.dismiss(None)
            return
        self._kept = texts
        self.query_one(".dialog-hint", Static).update("not saved: ^S saves it, esc again closes without it")

    def _texts(self) -> tuple[str, ...]:
        fields = self.query("Input, TextArea").results()
        return tuple(field.text if isinstance(field, TextArea) else field.value for field in fields)  # type: ignore[attr-defined]


class Choose(Dialog[int]):
    """A question with a few answers; the index of the chosen one."""

    def __init__(self, title: str, text: str, answers: Sequence[str]) -> None:
        super().__init__(title, text)
        self._answers = answers

    def content(self) -> ComposeResult:
        """The answers."""
        yield OptionList(*(Option(Content(answer)) for answer in self._answers))
        yield Static("enter choose   esc cancel", classes="dialog-hint", markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer."""
        self.dismiss(event.option_index)


class AskLine(Dialog[str]):
    """A question answered with one line."""

    def __init__(self, title: str, text: str = "", value: str = "") -> None:
        super().__init__(title, text)
        self._value = value

    def content(self) -> ComposeResult:
        """The line."""
        yield Input(self._value)
        yield Static("enter done   esc cancel", classes="dialog-hint", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer."""
        self.dismiss(event.value)


class AskText(Form[str]):
    """A question answered with a text of several lines."""

    BINDINGS = [Binding("ctrl+s", "done", "done", show=False, priority=True)]

    def __init__(self, title: str, text: str = "", value: str = "") -> None:
        super().__init__(title, text)
        self._value = value

    def content(self) -> ComposeResult:
        """The lines."""
        yield TextBox(self._value, soft_wrap=True)
        yield Static("^S done   esc cancel", classes="dialog-hint", markup=False)

    def action_done(self) -> None:
        """Answer."""
        self.dismiss(self.query_one(TextArea).text)
