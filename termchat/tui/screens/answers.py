"""Several answers to one message side by side, while they come; one is kept, the others stay versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from ...messages import StoredMessage
from ..conversations.conversation import Conversation
from ..glyphs import ASCII, Glyphs
from ..widgets.conversation_view import figures_of
from ..widgets.message_rows import MessageRows
from ..widgets.transcript import Transcript

READ_SECONDS = 0.1
NARROWEST = 40
"""Cells of an answer beside another one; with less room they are below each other."""
LOWEST = 9
"""Rows of an answer; with less room they are scrolled through."""

_PHASES = {"queued": "waiting", "prefill": "reading the prompt", "decode": "writing"}


class Answer(Vertical):
    """One of the answers: a frame with its number, and its text, which may grow."""

    DEFAULT_CSS = """
    Answer { border: round $primary 60%; height: 1fr; background: $background; }
    Answer:focus-within { border: heavy $accent; }
    Answer Transcript { height: 1fr; background: $background; scrollbar-size-vertical: 1; }
    """

    def __init__(self, number: int, glyphs: Glyphs, confidence: bool) -> None:
        super().__init__()
        self._confidence = confidence
        self._number = number
        self._glyphs = glyphs
        self._rows = self._begun()
        self._seen = ("", "")  # text and thinking that are in the rows
        self.transcript = Transcript(ascii=glyphs is ASCII)

    def compose(self) -> ComposeResult:
        """The text."""
        yield self.transcript

    def on_mount(self) -> None:
        """Nothing has come."""
        self.transcript.show([self._rows])

    def show(self, conversation: Conversation, stored: StoredMessage | None, lack: str) -> None:
        """Show an answer as it is now. stored: None if there is none; lack: why not, "" if it will come."""
        live = None if stored is None else conversation.live.get(stored.id)
        part = live if live is not None else stored
        text, thinking = ("", "") if part is None else (part.text, part.thinking)
        doubts = live.doubts if live is not None else stored and conversation.doubts.get(stored.id)
        here = f"{self._glyphs.here} " if self.transcript.has_focus else ""
        state = f"{self._glyphs.between}{_PHASES[live.phase]}" if live is not None else ""
        self.border_title = f"{here}{self._number}{state}"
        if (text, thinking) != self._seen or (self._rows.complete and live is not None):
            before, thought = self._seen
            goes_on = text.startswith(before) and thinking.startswith(thought)
            if self._rows.complete or not goes_on:
                self._rows, before, thought = self._begun(), "", ""
                self.transcript.show([self._rows])
            self._rows.append(text[len(before) :], thinking[len(thought) :])
            self._seen = text, thinking
        self._rows.marked = doubts.spans if doubts and self._confidence else ()
        if not self._rows.complete and live is None and (stored is not None or lack):
            self._rows.note = figures_of(stored) if stored is not None else [lack]
            self._rows.finish()
        self.transcript.flush()

    def _begun(self) -> MessageRows:
        label = f"answer {self._number}"
        between = self._glyphs.between
        return MessageRows(str(self._number), "assistant", label=label, between=between, complete=False)


class AnswersScreen(ModalScreen[int | None]):
    """Compare answers; the id of the one to be kept, None if that is left open."""

    BINDINGS = [  # first of all, so that what is typed next goes to the screen below
        Binding("escape", "dismiss_none", "close", show=False, priority=True),
        Binding("enter", "keep", "keep", show=False, priority=True),
        Binding("ctrl+c", "stop", "stop", show=False, priority=True),
        Binding("left,shift+tab", "move(-1)", "previous", show=False, priority=True),
        Binding("right,tab", "move(1)", "next", show=False, priority=True),
        *(
            Binding(str(number), f"go({number - 1})", "answer", show=False, priority=True)
            for number in range(1, 10)
        ),
    ]
    DEFAULT_CSS = """
    AnswersScreen { background: $background; }
    AnswersScreen #question {
        height: 1; padding: 0 1; color: $chat-muted; text-overflow: ellipsis; text-wrap: nowrap;
    }
    AnswersScreen #answers { layout: grid; height: 1fr; scrollbar-size-vertical: 1; }
    AnswersScreen #keys { dock: bottom; height: 1; padding: 0 1; color: $chat-muted; }
    """

    def __init__(
        self,
        conversation: Conversation,
        question: str,
        count: int,
        ids: Sequence[int],
        now: Callable[[int], int],
        glyphs: Glyphs,
        *,
        confidence: bool = False,
    ) -> None:
        """ids: of the answers, none until they begin. now: the id that one of them has now."""
        super().__init__()
        self._conversation = conversation
        self._question = " ".join(question.split())
        self._now = now
        self._ids = ids
        self._answers = [Answer(number, glyphs, confidence) for number in range(1, count + 1)]

    def compose(self) -> ComposeResult:
        """What was asked, the answers, the keys."""
        yield Static(self._question, id="question", markup=False)
        with VerticalScroll(id="answers", can_focus=False):
            yield from self._answers
        keys = "enter keep this one   ←→ 1-9 others   ^C stop   esc keep all"
        yield Static(keys, id="keys", markup=False)

    def on_mount(self) -> None:
        """Look at the answers from now on."""
        self._answers[0].transcript.focus()
        self.set_interval(READ_SECONDS, self.read)
        self.read()

    def on_resize(self, event: events.Resize) -> None:
        """Side by side where there is room, else below each other."""
        columns = max(1, min(len(self._answers), event.size.width // NARROWEST))
        rows = -(-len(self._answers) // columns)
        grid = self.query_one("#answers")
        grid.styles.grid_size_columns = columns
        high = (event.size.height - 2) // rows >= LOWEST
        grid.styles.grid_rows = "1fr" if high else str(LOWEST)

    def read(self) -> None:
        """Show what has come since the last time."""
        conversation = self._conversation
        lack = conversation.error or "there is no answer"
        for number, answer in enumerate(self._answers):
            stored = self._stored(number)
            gone = number < len(self._ids) and stored is None
            answer.show(conversation, stored, lack if gone or not conversation.busy else "")

    def _stored(self, number: int) -> StoredMessage | None:
        tree = self._conversation.tree or {}
        return tree.get(self._now(self._ids[number])) if number < len(self._ids) else None

    @property
    def _here(self) -> int:
        """The number of the answer that the keys are at."""
        places = [number for number, each in enumerate(self._answers) if each.transcript.has_focus]
        return places[0] if places else 0

    def action_move(self, step: int) -> None:
        """Go to the next answer, or the one before."""
        self.action_go((self._here + step) % len(self._answers))

    def action_go(self, number: int) -> None:
        """Go to an answer."""
        if number < len(self._answers):
            self._answers[number].transcript.focus()
            self.read()

    def action_keep(self) -> None:
        """Keep the answer that the keys are at, if there is one."""
        stored = self._stored(self._here)
        if stored is None:
            self.app.bell()
        else:
            self.dismiss(stored.id)

    def action_stop(self) -> None:
        """Stop all that are being written; what there is stays."""
        for reply in self._conversation.live.values():
            reply.stop()

    def action_dismiss_none(self) -> None:
        """Close; all stay."""
        self.dismiss(None)
