"""The box the user types in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from textual import events
from textual.binding import Binding
from textual.document._document import Location
from textual.message import Message
from textual.strip import Strip
from textual.widgets.text_area import Edit, EditResult

from ...graphemes import grapheme_end, grapheme_start
from ...sanitize import show_controls
from ..conversations.origin import Origin, Origins, all_from
from ..terminal.ascii import AsWritten
from .completing import Completing
from .kept_rows import Kept

_FOLD_LINES = 8  # a paste of more lines or characters is folded into a token
_FOLD_CHARACTERS = 1000
_LOAD_CHARACTERS = 10_000  # only so much text can be edited smoothly; more of it is folded, too
_TOKEN = re.compile(r"\[Pasted #(\d+) \+\d+ (?:lines|characters)\]")


class Prompt(AsWritten, Kept, Completing):
    """Grows with its text, as far as its owner lets it. Enter sends; ctrl+j, shift+enter and alt+enter begin
    a line.

    A large paste shows as a token such as `[Pasted #1 +120 lines]`: its text is in `value` and in what is
    sent, as long as the token is there. Up in the first row and down in the last go through `earlier`, the
    prompts before from oldest to newest. It does not clear itself when something is sent.

    While what is typed can be completed, `offer` has what it may become: Tab and Enter take it, Up and Down
    choose.
    """

    BINDINGS = [
        Binding("ctrl+j,shift+enter,alt+enter", "new_line", "new line", show=False),
        Binding("ctrl+d", "delete_right_or_leave", "delete the next character, or leave", show=False),
        Binding("alt+left", "cursor_word_left", "word left", show=False),
        Binding("alt+right", "cursor_word_right", "word right", show=False),
    ]
    DEFAULT_CSS = """
    Prompt {
        height: auto; margin: 0 1; padding: 0 1;
        border: round $primary 40%; background: $background;
        & .text-area--placeholder { color: $chat-muted; }
    }
    Prompt:focus { border: round $primary; }
    """

    class Submitted(Message):
        """Enter was pressed. text: with the pasted texts in the place of their tokens; origins: of its
        characters, as `origin` has them.
        """

        def __init__(self, text: str, origins: bytes) -> None:
            super().__init__()
            self.text = text
            self.origins = origins

    class Left(Message):
        """Ctrl-D was pressed, and there is no text: the end of the input, as shells have it."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(
            soft_wrap=True,
            tab_behavior="focus",
            placeholder="Type a message",
            highlight_cursor_line=False,
            id=id,
        )
        self.earlier: Sequence[str] = ()
        self.emptied = ""  # what was taken away, until something else is loaded
        self._at: int | None = None  # which of the earlier ones is shown
        self._left: dict[int, tuple[str, bytes]] = {}  # texts as they were left there, with their origins
        self._pasted: dict[int, str] = {}
        self._origins = Origins()
        self.revision = 0  # changes with the text
        self._origin: Origin = "typed"  # of what is put in now

    @property
    def value(self) -> str:
        """The text with everything that was pasted."""
        return _TOKEN.sub(lambda token: self._pasted.get(int(token[1]), token[0]), self.text)

    @property
    def origins(self) -> bytes:
        """Where each character of `value` came from, as `origin` has it."""
        parts, origins, at = [], self._origins.codes, 0
        for token in _TOKEN.finditer(self.text):
            if (pasted := self._pasted.get(int(token[1]))) is not None:
                start = token.start()
                parts += [origins[at:start], origins[start : start + 1] * len(pasted)]
                at = token.end()
        return b"".join([*parts, origins[at:]])

    def load(self, text: str, origins: bytes = b"") -> None:
        """Replace the text and put the cursor at its end. origins: of its characters, if that is known."""
        self._at, self.emptied = None, ""
        self._left.clear()
        self._show(text, origins)
        self.withdraw()

    def edit(self, edit: Edit) -> EditResult:
        """Every change of the text but `load`, undo and redo."""
        result = super().edit(edit)
        self._note(self._origin)
        return result

    def undo(self) -> None:
        """Take the last change back."""
        super().undo()
        self._note("back")

    def redo(self) -> None:
        """Make the change that was taken back last."""
        super().redo()
        self._note("back")

    def _note(self, origin: Origin) -> None:
        self.revision += 1
        self._origins.update(self.text, origin)
        if origin == "typed":
            self.look()
        else:
            self.withdraw()

    def empty(self) -> None:
        """Take the text away, so that it can be recalled, or brought back by undo."""
        self.emptied = self.value
        self.recall_later(self.emptied)
        self._at = None
        self._left.clear()
        self.clear()

    def recall_later(self, text: str) -> None:
        """Keep a text as the last of the earlier prompts."""
        self.earlier = [*self.earlier, text]

    def paste(self, text: str) -> None:
        """Put text in the place of the selection, folded if it is large. It is never sent by this."""
        text = show_controls(text)
        if text.count("\n") >= _FOLD_LINES or len(text) > _FOLD_CHARACTERS:
            text = self._fold(text)
        start, end = self.selection
        with self._from("pasted"):
            self.replace(text, start, end, maintain_selection_offset=False)

    def yank(self, text: str) -> None:
        """Put back what was deleted: where that came from is not known any more."""
        with self._from("back"):
            super().yank(text)

    @contextmanager
    def _from(self, origin: Origin) -> Iterator[None]:
        self._origin = origin
        try:
            yield
        finally:
            self._origin = "typed"

    async def on_key(self, event: events.Key) -> None:
        """Send, with what is offered; other keys are the text area's."""
        if event.key in ("enter", "ctrl+enter"):  # most terminals send the same for both
            if self.offer.at is None or self.take(self.offer.at):
                self.post_message(self.Submitted(self.value, self.origins))
            event.stop()
            event.prevent_default()

    def action_new_line(self) -> None:
        """Begin a line."""
        self.replace("\n", *self.selection, maintain_selection_offset=False)

    def action_delete_right_or_leave(self) -> None:
        """Delete to the right; leave if there is no text at all."""
        if self.text:
            self.action_delete_right()
        else:
            self.post_message(self.Left())

    def on_paste(self, event: events.Paste) -> None:
        """Take in a bracketed paste."""
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def action_paste(self) -> None:
        """Take in what was copied in the application."""
        self.paste(self.app.clipboard)

    def action_cursor_up(self, select: bool = False) -> None:
        """Go up; from the first row to the prompt before."""
        if not select and self.choose(-1):
            return
        if select or self._row > 0 or not self._recall(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Go down; from the last row to the prompt after."""
        if not select and self.choose(1):
            return
        if select or self._row < self.wrapped_document.height - 1 or not self._recall(1):
            super().action_cursor_down(select)

    def action_delete_left(self) -> None:
        """Delete to the left: what is seen as one character, or a token as a whole."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        for token in _TOKEN.finditer(before):
            if token.end() == column and int(token[1]) in self._pasted and self.selection.is_empty:
                self.delete((row, token.start()), (row, column), maintain_selection_offset=False)
                return
        super().action_delete_left()

    def get_cursor_left_location(self) -> Location:
        """One character to the left, as it is seen."""
        row, column = self.cursor_location
        if column:
            return row, grapheme_start(self.document.get_line(row)[:column])
        return super().get_cursor_left_location()

    def get_cursor_right_location(self) -> Location:
        """One character to the right, as it is seen."""
        row, column = self.cursor_location
        if width := grapheme_end(self.document.get_line(row)[column:]):
            return row, column + width
        return super().get_cursor_right_location()

    def render_line(self, y: int) -> Strip:
        """One row; none where the border leaves no room, as the placeholder cannot be wrapped to nothing."""
        return super().render_line(y) if self.content_size.width > 0 else Strip.blank(0)

    @property
    def _row(self) -> int:
        """The row of the cursor, wrapped rows counted."""
        return self.wrapped_document.location_to_offset(self.cursor_location).y

    def _recall(self, step: int) -> bool:
        """Show another of the earlier prompts; whether there is one."""
        newest = len(self.earlier)
        at = newest if self._at is None else self._at
        if not 0 <= at + step <= newest:
            return False
        if at == newest or self.value != self.earlier[at]:  # as shells do: what was changed there stays so
            self._left[at] = self.value, self.origins
        at += step
        self._at = at if at < newest else None
        self._show(*(self._left[at] if at in self._left else (self.earlier[at],)))
        return True

    def _show(self, text: str, origins: bytes = b"") -> None:
        self._pasted.clear()
        text = show_controls(text)
        self.text = self._fold(text) if len(text) > _LOAD_CHARACTERS else text
        self.revision += 1
        known = len(origins) == len(self.text)
        self._origins.reset(self.text, origins if known else all_from("back", len(self.text)))
        self.move_cursor(self.document.end)

    def _fold(self, text: str) -> str:
        """Keep a text and return the token for it."""
        number = max(self._pasted, default=0) + 1
        self._pasted[number] = text
        lines = text.count("\n") + 1
        return (
            f"[Pasted #{number} +{lines} lines]"
            if lines > 1
            else f"[Pasted #{number} +{len(text)} characters]"
        )
