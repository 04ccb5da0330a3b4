"""The main screen: conversations | the open one and the prompt | engine panel."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.screen import Screen

from ...errors import UserError
from ...store import StoredMessage
from ..command import Command
from ..commands import COMMANDS
from ..commands.sending import submit
from ..conversations.context_full import summary_in
from ..conversations.conversation import Conversation
from ..conversations.live_reply import LiveReply
from ..engines.model_slot import ModelSlot
from ..keymap import Keys
from ..terminal.typeahead import LONGEST_SECONDS, is_text
from ..widgets.conversation_list import ConversationList
from ..widgets.conversation_view import ConversationView
from ..widgets.engine_panel import EngineLine, EnginePanel
from ..widgets.kept_rows import Columns, Kept, Label, Stack
from ..widgets.notices import Notices
from ..widgets.origin import all_from
from ..widgets.prompt import Prompt
from ..widgets.status_line import Place, StatusLine
from ..widgets.title_line import TitleLine, warning
from ..widgets.welcome import Welcome
from .layout import Layout, Wanted, layout

if TYPE_CHECKING:
    from ..app import TermchatApp

log = logging.getLogger(__name__)

TICK_SECONDS = 0.1
TICKS_A_POLL = 2
TICKS_A_LOOK = 10


class MainScreen(Kept, Screen[None]):
    """Puts conversations, engine and widgets together; it is told of all changes."""

    if TYPE_CHECKING:
        app: TermchatApp

    BLANK = True
    DEFAULT_CSS = """
    MainScreen { background: $background; }
    MainScreen #columns { height: 1fr; }
    MainScreen #middle { width: 1fr; }
    MainScreen #side { width: 26; background: $surface; }
    MainScreen #side-title { height: 2; padding: 1 2 0 2; color: $primary; text-style: bold; }
    MainScreen ConversationList { width: 1fr; height: 1fr; margin-top: 1; }
    MainScreen ConversationView, MainScreen Welcome { height: 1fr; }
    MainScreen EngineLine { display: none; }
    """

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._bindings = BindingsMap.merge([self._bindings, BindingsMap(keys.bindings())])
        self.wanted = Wanted()
        self.escaped_at = 0.0
        self._acting: set[object] = set()  # commands that keys typed later wait for
        self._acted = asyncio.Event()  # one of them has ended, or opened a dialog
        self.sending = asyncio.Lock()
        self._looking = False
        self._seen: tuple[Conversation, int] | None = None  # whose prompt, and how it was
        self._stale = False
        self._list_stale = False
        self._streams = False

    # Parts

    @property
    def conversation(self) -> Conversation:
        """The conversation on screen."""
        shown = self.app.conversations.shown
        assert shown is not None, "there always is one"
        return shown

    @property
    def slot(self) -> ModelSlot:
        """The model of the conversation on screen."""
        return self.app.engines.of(self.conversation.model)

    @property
    def view(self) -> ConversationView:
        """The messages."""
        return self.query_one(ConversationView)

    @property
    def prompt(self) -> Prompt:
        """Where the user types."""
        return self.query_one(Prompt)

    def compose(self) -> ComposeResult:
        """The three columns."""
        glyphs, keys = self.app.glyphs, self.app.keys
        with Columns(id="columns"):
            with Stack(id="side"):
                yield Label("termchat", id="side-title", markup=False)
                yield ConversationList(glyphs)
            with Stack(id="middle"):
                yield TitleLine(glyphs)
                yield ConversationView(glyphs, keys)
                yield Welcome(glyphs, keys)
                yield Notices(glyphs)
                yield Prompt()
                yield EngineLine(glyphs)
                yield StatusLine(keys)
            yield EnginePanel(glyphs)

    def on_mount(self) -> None:
        """Start the timer: one for all, as every moment in which something changes is drawn by itself."""
        self.view.display = False
        self.prompt.focus()
        self._ticks = 0
        self.set_interval(TICK_SECONDS, self._tick)

    # What is told (listener.py)

    def conversations_changed(self) -> None:
        """The list is drawn again."""
        self._list_stale = True

    def conversation_changed(self, conversation: Conversation) -> None:
        """The conversation is drawn again, once for all changes of this moment."""
        self._list_stale = True
        if conversation is self.app.conversations.shown and not self._stale:
            self._stale = True
            self.call_next(self._redraw)

    def reply_grew(self, conversation: Conversation, reply: LiveReply, answer: str, thinking: str) -> None:
        """Text for the conversation on screen; others keep it as text."""
        if self.app.fault is None and conversation is self.app.conversations.shown:
            self.view.grow(conversation, reply, answer, thinking)

    def reply_ended(self, conversation: Conversation) -> None:
        """Ring for a conversation that is not on screen."""
        if self.app.fault is not None:
            return
        if conversation is not self.app.conversations.shown or not self.app.app_focus:
            self.app.bell()
        self._warn(conversation)

    def _warn(self, conversation: Conversation) -> None:
        """Say once before it happens that a context gets full."""
        said = warning(conversation, self.app.engines.of(conversation.model).context_length)
        if said and not conversation.warned:
            conversation.warned = True
            self.notify_user(said)

    def tell_lasting(self, text: str) -> None:
        """A literal sentence above the prompt that stays until it is replaced; "" is none."""
        if self.app.fault is not None:
            return
        self.query_one(Notices).keep(text)

    def notify_user(self, text: str, *, error: bool = False) -> None:
        """A literal sentence above the prompt."""
        if self.app.fault is not None:  # nothing is drawn any more, but what is saved must be
            return
        self.query_one(Notices).tell(text, error=error)

    # Drawing

    async def _redraw(self) -> None:
        self._stale = False
        conversation = self.app.conversations.shown
        if conversation is None:
            return
        self.app.turns.focus()
        waits = self.slot.state in ("starting", "absent", "downloading")
        shown = bool(conversation.error or summary_in(conversation.system))
        empty = not shown and (not conversation.messages or (waits and len(conversation.messages) == 1))
        self.query_one(Welcome).display = empty
        self.view.display = not empty
        if not empty:
            self.view.show(conversation)
        self._draw_frame()

    def _draw_frame(self) -> None:
        """Title, welcome and status line."""
        conversation, slot = self.conversation, self.slot
        self.query_one(TitleLine).show(conversation, slot.title, slot.context_length)
        self.query_one(StatusLine).show(conversation, slot, self._place(), self._way_down())
        self.view.show_tail(conversation, slot)
        if self.query_one(Welcome).display:
            self.query_one(Welcome).show(slot, len(conversation.messages) + len(conversation.queue))
            if slot.state == "ready" and conversation.messages:
                self.conversation_changed(conversation)

    def _place(self) -> Place:
        """Where the keys are."""
        if self.view.focused is not None:
            return "message"
        return "list" if self.in_list else "prompt"

    def _way_down(self) -> str:
        """The key that goes to the new text below the screen; "" if there is none."""
        if not self.view.unseen:
            return ""
        return self.app.keys.hint("scroll.page_down" if self.prompt.text else "scroll.end")

    def poll(self) -> None:
        """Five times a second: the engine's snapshot, for panel and list."""
        app = self.app
        if app.conversations.shown is None or not self.is_mounted:
            return
        streams = any(conversation.live for conversation in app.conversations.all)
        if streams is not self._streams:  # each blink is a frame of its own; beside moving text it can rest
            self._streams = streams
            self.prompt.cursor_blink = not streams
        app.monitor.read()
        for conversation in app.conversations.all:
            if conversation.live and not conversation.warned:
                self._warn(conversation)
        panel = self.query_one(EnginePanel)
        if panel.display:
            panel.show(self.slot, app.monitor.stats)
        else:
            self.query_one(EngineLine).show(self.slot, app.monitor.stats)
        self._draw_frame()
        self._draw_list()
        app.show_stats()

    def _draw_list(self) -> None:
        self._list_stale = False
        app = self.app
        self.query_one(ConversationList).update(
            app.conversations.all, app.conversations.shown, app.monitor.speeds
        )

    def _tick(self) -> None:
        self.app.streaming.look()
        self.view.flush()
        self._ticks += 1
        if self._ticks % TICKS_A_LOOK == 0:
            self._look()
        if self._ticks % TICKS_A_POLL == 0:
            self.poll()
        elif self._list_stale:
            self._draw_list()

    def _look(self) -> None:
        """Once a second: what was typed goes to the store, what others have stored comes from there."""
        if (seen := (self.conversation, self.prompt.revision)) != self._seen:
            self._seen = seen
            self.keep_draft()
        self.app.conversations.unsent.keep(self.app.conversations.all)
        if not self._looking:
            self._looking = True
            self.run_worker(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self.app.conversations.windows.refresh()
        finally:
            self._looking = False

    # Size

    def on_resize(self, event: events.Resize) -> None:
        """Fold what does not fit."""
        self._fold(layout(event.size.width, event.size.height, self.wanted))

    def want(self, **wanted: Any) -> Layout:
        """Change what the user wants to see; what is shown then."""
        self.wanted = replace(self.wanted, **wanted)
        shown = layout(self.size.width, self.size.height, self.wanted)
        self._fold(shown)
        return shown

    def _fold(self, shown: Layout) -> None:
        self.query_one(EnginePanel).display = shown.panel
        self.query_one(EngineLine).display = shown.line
        side = self.query_one("#side")
        side.display = shown.list
        side.styles.width = "1fr" if shown.narrow else None
        self.query_one("#middle").display = shown.conversation
        self.query_one(TitleLine).display = shown.frame
        self.query_one(StatusLine).display = shown.frame
        self.call_after_refresh(self.poll)

    # Doing

    def run_command(self, command: Command, argument: str = "") -> None:
        """Carry out a command; what goes wrong is told, and is never the end of the program."""
        begun = object()

        async def run() -> None:
            try:
                await command.run(self, argument)
            except (UserError, OSError, ValueError) as error:
                self.notify_user(str(error), error=True)
            except Exception as error:
                log.exception("the command %s failed", command.id)
                fault = f"{command.title}: termchat has a fault: {type(error).__name__}: {error}"
                self.notify_user(f"{fault}; the log has the details", error=True)
            finally:
                self._acting.discard(begun)
                self._acted.set()

        self._acting.add(begun)
        self.run_worker(run(), exit_on_error=True)

    async def action_command(self, id: str) -> None:
        """A key of a command."""
        self.run_command(next(command for command in COMMANDS if command.id == id))

    async def commands_act(self) -> None:
        """Wait until the commands are carried out or wait for an answer; not for one that takes long."""
        while self._acting and self.app.screen is self:
            self._acted.clear()
            try:
                await asyncio.wait_for(self._acted.wait(), LONGEST_SECONDS)
            except TimeoutError:
                self._acting.clear()

    def on_screen_suspend(self) -> None:
        """A dialog is above this screen."""
        self._acted.set()

    def on_key(self, event: events.Key) -> None:
        """What is typed where nothing takes it goes to the prompt."""
        if is_text(event) and not self.prompt.has_focus:
            event.stop()
            self.prompt.focus()
            self.prompt.insert(event.character or "")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that are letters belong to messages: elsewhere they are typed. Those that scroll are the
        prompt's where it has more rows than it shows.
        """
        id = str(parameters[0]) if action == "command" else ""
        if id.startswith("message.") and id not in ("message.previous", "message.next"):
            return self.view.focused is not None
        if id in ("scroll.page_up", "scroll.page_down"):
            return not (self.prompt.has_focus and self.prompt.max_scroll_y > 0) and not self.in_list
        if id == "scroll.end":
            return not (self.prompt.has_focus and self.prompt.text) and not self.in_list
        return True

    @property
    def in_list(self) -> bool:
        """Whether the keys are in the list of conversations."""
        return isinstance(self.focused, ConversationList)

    def keep_draft(self) -> None:
        """Note what is typed as the draft of the conversation on screen."""
        if self.app.conversations.shown is not None:
            self.app.conversations.shown.draft = self.prompt.value
            self.app.conversations.shown.sources = self.prompt.sources

    async def switch_to(self, conversation: Conversation) -> None:
        """Put a conversation on screen, with what was typed there."""
        self.keep_draft()
        self.prompt.load(conversation.draft, conversation.sources)
        if self.wanted.swapped:
            self.want(swapped=False)
        left = await self.app.conversations.show(conversation)
        self.give_back(conversation, [left] if left else [])
        self.prompt.focus()

    def edit_message(self, message: StoredMessage) -> None:
        """Put a message of the user into the prompt; sent, it becomes a new version."""
        self.conversation.editing = message
        self.prompt.load(message.text)
        self.prompt.focus()
        self.view.mark(message.id)
        self._draw_frame()

    def give_back(self, conversation: Conversation, texts: list[str], sources: bytes = b"") -> None:
        """Put texts that are not sent where they can be edited: before what is typed there.

        sources: of the characters of a single one.
        """
        if not texts:
            return
        if conversation is self.conversation:
            self.keep_draft()
        text = "\n\n".join(texts)
        known = sources if len(sources) == len(text) else all_from("back", len(text))
        if conversation.draft.strip() and len(conversation.sources) == len(conversation.draft):
            text, known = (
                f"{text}\n\n{conversation.draft}",
                known + all_from("typed", 2) + conversation.sources,
            )
        elif conversation.draft.strip():
            text, known = f"{text}\n\n{conversation.draft}", b""
        conversation.draft, conversation.sources = text, known
        if conversation is self.conversation:
            self.prompt.load(conversation.draft, conversation.sources)

    def go_to_message(self, message_id: int) -> None:
        """Put the keys at a message, once it is drawn."""
        self.call_after_refresh(self.view.go_to, message_id)

    async def on_conversation_list_chosen(self, event: ConversationList.Chosen) -> None:
        """A row of the list."""
        await self.switch_to(event.conversation)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The keys in the status line depend on the focus; the mark of a message goes with it."""
        if self.app.conversations.shown is not None:
            if event.widget is self.prompt and self.conversation.editing is None:
                self.view.mark(None)
            self._draw_frame()

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted where nothing takes it goes to the prompt."""
        event.stop()
        self.prompt.focus()
        self.prompt.paste(event.text)

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Enter. What is sent is seen."""
        self.view.transcript.follow()
        submit(self, event.text, event.sources)
