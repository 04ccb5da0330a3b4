"""The parts of the main screen, side by side and below each other, as far as there is room for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from ..conversations.conversation import Conversation
from ..keymap import Keys
from ..ui import Program
from ..widgets.conversation_list import ConversationList
from ..widgets.conversation_view import ConversationView
from ..widgets.engine_panel import EngineLine, EnginePanel
from ..widgets.kept_rows import Columns, Kept, Label, Stack
from ..widgets.notices import Notices
from ..widgets.prompt import Prompt
from ..widgets.status_line import StatusLine
from ..widgets.suggestions import Suggestions
from ..widgets.title_line import TitleLine
from ..widgets.welcome import Welcome
from .layout import LIST_COLUMNS, Layout, Wanted, layout


class FoldingScreen(Kept, Screen[None]):
    """Conversations | the open one and the prompt | engine panel."""

    if TYPE_CHECKING:
        app: Program  # type: ignore[assignment]

    BLANK = True
    DEFAULT_CSS = """
    FoldingScreen { background: $background; }
    FoldingScreen #columns { height: 1fr; }
    FoldingScreen #middle { width: 1fr; }
    FoldingScreen #side { background: $surface; }
    FoldingScreen #side-title { height: 2; padding: 1 2 0 2; color: $primary; text-style: bold; }
    FoldingScreen ConversationList { width: 1fr; height: 1fr; margin-top: 1; }
    FoldingScreen ConversationView, FoldingScreen Welcome { height: 1fr; }
    FoldingScreen #said { height: auto; }
    FoldingScreen #foot { height: auto; dock: bottom; }
    FoldingScreen EngineLine { display: none; }
    """

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self.keys = keys
        self.wanted = Wanted()

    @property
    def shown(self) -> Conversation | None:
        """The conversation on screen; None before the first one."""
        return self.app.conversations.shown

    @property
    def view(self) -> ConversationView:
        """The messages."""
        return self.query_one(ConversationView)

    @property
    def prompt(self) -> Prompt:
        """Where the user types."""
        return self.query_one(Prompt)

    @property
    def room_to_offer(self) -> int:
        """Rows in which the prompt can offer something."""
        notices = self.query_one(Notices)
        above = layout(self.size.width, self.size.height, self.wanted).above
        return above - (notices.size.height if notices.display else 0)

    @property
    def in_list(self) -> bool:
        """Whether the keys are in the list of conversations."""
        return isinstance(self.focused, ConversationList)

    def compose(self) -> ComposeResult:
        """The three columns."""
        glyphs, hint = self.app.glyphs, self.keys.hint
        with Columns(id="columns"):
            with Stack(id="side"):
                yield Label("termchat", id="side-title", markup=False)
                yield ConversationList(glyphs)
            with Stack(id="middle"):
                yield TitleLine(glyphs)
                yield ConversationView(glyphs, hint)
                yield Welcome(glyphs, hint)
                with Stack(id="said"):
                    yield Notices(glyphs)
                    yield Suggestions(glyphs)
                with Stack(id="foot"):
                    yield Prompt()
                    yield EngineLine(glyphs)
                    yield StatusLine(hint)
            yield EnginePanel(glyphs)

    def on_resize(self, event: events.Resize) -> None:
        """Fold what does not fit."""
        self._fold(layout(event.size.width, event.size.height, self.wanted))

    def want(self, **wanted: Any) -> Layout:
        """Change what the user wants to see; what is shown then."""
        self.wanted = replace(self.wanted, **wanted)
        shown = layout(self.size.width, self.size.height, self.wanted)
        self._fold(shown)
        return shown

    def swap_list(self) -> None:
        """Show or hide the list; on a narrow screen it takes the place of the conversation."""
        narrow = self.size.width < LIST_COLUMNS
        shown = self.want(swapped=not self.wanted.swapped) if narrow else self.want(list=not self.wanted.list)
        (self.query_one(ConversationList) if shown.list else self.prompt).focus()

    def poll(self) -> None:
        """Draw what the engine does now."""
        raise NotImplementedError

    def _fold(self, shown: Layout) -> None:
        self.query_one(EnginePanel).display = shown.panel
        self.query_one(EngineLine).display = shown.line
        side = self.query_one("#side")
        side.display = shown.list
        side.styles.width = "1fr" if shown.narrow else shown.side
        self.query_one("#middle").display = shown.conversation
        self.query_one("#said").styles.max_height = shown.above
        self.prompt.styles.max_height = shown.prompt
        self.view.set_class(not shown.frame, "-bare")
        self.query_one(TitleLine).display = shown.frame
        self.query_one(StatusLine).display = shown.frame
        self.call_after_refresh(self.poll)
