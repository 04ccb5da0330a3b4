"""The main screen: conversations | the open one and the prompt | engine panel."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from ...errors import UserError
from ...store import StoredMessage
from ...widgets.prompt import Prompt
from .. import attach
from ..background import in_background
from ..chat import Chat, LiveReply
from ..commands import COMMANDS
from ..commands.registry import Command, find, is_command
from ..keymap import bindings, shown
from ..stats import EngineStats, StatsHistory, derive, rates
from ..widgets.block import Block
from ..widgets.chat_list import ChatList
from ..widgets.conversation import ConversationView
from ..widgets.engine_panel import EngineLine, EnginePanel
from ..widgets.meter import NEARLY_FULL, TitleLine
from ..widgets.welcome import Welcome
from .dialogs import Choose

if TYPE_CHECKING:
    from ..app import TermchatApp

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
FLUSH_SECONDS = 0.1
PANEL_COLUMNS = 100
"""Below this width the panel is one line."""
LIST_COLUMNS = 70
"""Below this width the list is hidden too."""
LOW_ROWS = 10
"""Below this height only conversation and prompt are left."""
AGAIN_SECONDS = 1.0


class Columns(Horizontal):
    """Parts side by side that cover it: blank, so that its rows need not be composed at each change."""

    BLANK = True


class Rows(Vertical):
    """Parts below each other that cover it."""

    BLANK = True


class MainScreen(Screen[None]):
    """Puts controller, bridge and widgets together; it is the controller's listener."""

    BLANK = True
    BINDINGS = bindings(COMMANDS)
    DEFAULT_CSS = """
    MainScreen { background: $background; }
    MainScreen #columns { height: 1fr; }
    MainScreen #middle { width: 1fr; }
    MainScreen #side { width: 26; background: $surface; }
    MainScreen #side-title { height: 2; padding: 1 2 0 2; color: $primary; text-style: bold; }
    MainScreen ChatList { width: 1fr; height: 1fr; margin-top: 1; }
    MainScreen ConversationView, MainScreen Welcome { height: 1fr; }
    MainScreen #status { height: 1; padding: 0 2; color: $chat-muted; }
    MainScreen EngineLine { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.editing: StoredMessage | None = None
        self.stats: EngineStats | None = None
        self.history = StatsHistory()
        self.panel_mode = "full"
        self.list_wanted = True
        self._list_instead = False
        self._stale = False
        self._list_stale = False
        self._escaped = 0.0
        self._asked_model: set[Chat] = set()
        self._told_full: set[Chat] = set()
        self._peak_asked: object = None
        self._code = (0, 0)

    # Parts

    @property
    def ui(self) -> TermchatApp:
        """The application."""
        return cast("TermchatApp", self.app)

    @property
    def chat(self) -> Chat:
        """The conversation on screen."""
        shown = self.ui.controller.shown
        assert shown is not None, "there always is one"
        return shown

    @property
    def conversation(self) -> ConversationView:
        """The messages."""
        return self.query_one(ConversationView)

    @property
    def prompt(self) -> Prompt:
        """Where the user types."""
        return self.query_one(Prompt)

    def compose(self) -> ComposeResult:
        """The three columns."""
        glyphs = self.ui.glyphs
        with Columns(id="columns"):
            with Rows(id="side"):
                yield Static("termchat", id="side-title", markup=False)
                yield ChatList(glyphs)
            with Rows(id="middle"):
                yield TitleLine(glyphs)
                yield ConversationView(glyphs)
                yield Welcome(glyphs)
                yield Prompt()
                yield EngineLine()
                yield Block(id="status")
            yield EnginePanel(glyphs)

    def on_mount(self) -> None:
        """Start the timers."""
        self.conversation.display = False
        self.prompt.focus()
        self.set_interval(POLL_SECONDS, self.poll)
        self.set_interval(FLUSH_SECONDS, self._flush)

    # What the controller tells

    def chats_changed(self) -> None:
        """The list is drawn again."""
        self._list_stale = True

    def chat_changed(self, chat: Chat) -> None:
        """The conversation is drawn again, once for all changes of this moment."""
        self._list_stale = True
        if chat is self.ui.controller.shown and not self._stale:
            self._stale = True
            self.call_next(self._redraw)

    def reply_grew(self, chat: Chat, reply: LiveReply, answer: str, thinking: str) -> None:
        """Text for the conversation on screen; others keep it as text."""
        if chat is self.ui.controller.shown:
            self.conversation.grow(chat, reply, answer, thinking)

    def reply_ended(self, chat: Chat) -> None:
        """Ring for a conversation that is not on screen."""
        if chat is not self.ui.controller.shown or not self.app.app_focus:
            self.app.bell()
        self._warn_of_context(chat)

    def notify_user(self, text: str, *, error: bool = False) -> None:
        """A literal sentence in the corner."""
        severity: Any = "error" if error else "information"
        self.notify(text, severity=severity, markup=False, timeout=8 if error else 4)

    def engine_changed(self) -> None:
        """The bridge has another state."""
        self.poll()

    # Drawing

    async def _redraw(self) -> None:
        self._stale = False
        chat = self.ui.controller.shown
        if chat is None:
            return
        waits = self.ui.bridge.state in ("starting", "absent", "downloading")
        empty = not chat.messages or (waits and len(chat.messages) == 1)
        self.query_one(Welcome).display = empty
        self.conversation.display = not empty
        if empty:
            self.query_one(Welcome).show(self.ui.bridge, len(chat.messages) + len(chat.queue))
        else:
            self.conversation.show(chat)
        self._draw_frame()

    def _draw_frame(self) -> None:
        """Title and status line."""
        chat, engine = self.chat, self.ui.bridge.engine
        ready = self.ui.bridge.state == "ready" and engine is not None
        context = engine.info.context_length if ready and engine is not None else None
        model = chat.model or self.ui.bridge.reference
        self.query_one(TitleLine).show(chat, model.rpartition("/")[2], chat.tokens_used, context)
        self.query_one("#status", Block).show_lines([Content.styled(self._status(), "$chat-muted")])

    def _status(self) -> str:
        keys = self.ui.keys
        if self.editing is not None:
            return "editing a message   ⏎ send as a new version   esc leave it"
        if self.conversation.focused is not None:
            names = ("message.copy", "message.code", "message.edit", "message.again", "message.branch")
            words = ("copy", "code", "edit", "again", "branch")
            parts = [f"{shown(keys[name])} {word}" for name, word in zip(names, words, strict=True)]
            return "   ".join([*parts, "← → versions", "esc back"])
        if self.chat.busy:
            return f"⏎ queue   {shown(keys['reply.stop'])} stop   {shown(keys['chat.new'])} new chat"
        enter = "download" if self.ui.bridge.state == "absent" else "send"
        parts = [f"⏎ {enter}   ^J new line   {shown(keys['help'])} keys"]
        return "   ".join([*parts, f"{shown(keys['palette'])} commands"])

    def poll(self) -> None:
        """Five times a second: the engine's snapshot, for panel and list."""
        controller, bridge = self.ui.controller, self.ui.bridge
        if controller.shown is None or not self.is_mounted:
            return
        controller.observe()
        snapshot = bridge.snapshot()
        self.stats = derive(snapshot, controller.chats, controller.shown) if snapshot is not None else None
        if self.stats is not None:
            self.history.add(self.stats)
            if self.stats.idle and self.stats.snapshot.tokens_total > 0:
                self._measure_peak()
        panel = self.query_one(EnginePanel)
        if panel.display:
            panel.show(bridge, self.stats)
        else:
            self.query_one(EngineLine).show(bridge, self.stats)
        if self.query_one(Welcome).display:
            self.query_one(Welcome).show(bridge, len(self.chat.messages) + len(self.chat.queue))
            if bridge.state == "ready" and self.chat.messages:
                self.chat_changed(self.chat)
        self._draw_frame()
        self._draw_list()
        self.ui.show_stats(self.stats, self.history)

    def _draw_list(self) -> None:
        self._list_stale = False
        controller = self.ui.controller
        self.query_one(ChatList).update(
            controller.chats, controller.shown, rates(self.stats.snapshot if self.stats else None)
        )

    def _flush(self) -> None:
        self.conversation.flush()
        if self._list_stale:
            self._draw_list()

    def _measure_peak(self) -> None:
        """Ask once for an engine, after its first reply, when nothing runs."""
        engine = self.ui.bridge.engine
        if engine is None or engine is self._peak_asked:
            return
        self._peak_asked = engine

        async def measure() -> None:
            try:
                await engine.bandwidth_peak()
            except Exception:  # the engine was closed meanwhile: there is nothing to show
                log.info("the peak bandwidth was not measured", exc_info=True)

        self.run_worker(measure())

    def _warn_of_context(self, chat: Chat) -> None:
        """Say it before the context is full."""
        engine, used = self.ui.bridge.engine, chat.tokens_used
        if engine is None or used is None or chat in self._told_full:
            return
        context = engine.info.context_length
        if used >= NEARLY_FULL * context:
            self._told_full.add(chat)
            self.notify_user(
                f"{chat.title}: {used} of {context} tokens of the context are used; /compact makes room "
                "in a new conversation. Nothing is cut by itself."
            )

    # Size

    def on_resize(self, event: events.Resize) -> None:
        """Fold what does not fit."""
        self.fold(event.size.width, event.size.height)

    def fold(self, width: int, height: int) -> None:
        """Show what there is room for and the user wants."""
        low, narrow = height < LOW_ROWS, width < LIST_COLUMNS
        full = self.panel_mode == "full" and width >= PANEL_COLUMNS
        self.query_one(EnginePanel).display = full
        self.query_one(EngineLine).display = self.panel_mode != "off" and not full and not low
        side = self.query_one("#side")
        side.display = self._list_instead if narrow else self.list_wanted
        side.styles.width = "1fr" if narrow else None
        self.query_one("#middle").display = not (narrow and self._list_instead)
        self.query_one(TitleLine).display = not low
        self.query_one("#status").display = not low
        self.call_after_refresh(self.poll)

    # Doing

    def run_command(self, command: Command, argument: str = "") -> None:
        """Carry out a command; what goes wrong is told."""

        async def run() -> None:
            try:
                await command.run(self, argument)
            except (UserError, OSError, ValueError) as error:
                self.notify_user(str(error), error=True)

        self.run_worker(run(), exit_on_error=True)

    def action_command(self, id: str) -> None:
        """A key of a command."""
        self.run_command(next(command for command in COMMANDS if command.id == id))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that are letters belong to messages: elsewhere they are typed."""
        if action == "command" and str(parameters[0]).startswith("message."):
            on_message = self.conversation.focused is not None
            return on_message or str(parameters[0]) in ("message.previous", "message.next")
        return True

    async def switch_to(self, chat: Chat) -> None:
        """Put a conversation on screen, with what was typed there."""
        controller = self.ui.controller
        if controller.shown is not None:
            controller.shown.draft = self.prompt.value
        self.editing = None
        self.prompt.load(chat.draft)
        if self._list_instead:
            self._list_instead = False
            self.fold(self.size.width, self.size.height)
        await controller.show(chat)
        self.prompt.focus()

    async def on_chat_list_chosen(self, event: ChatList.Chosen) -> None:
        """A row of the list."""
        await self.switch_to(event.chat)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The keys in the status line depend on the focus."""
        if self.ui.controller.shown is not None:
            self._draw_frame()

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Enter."""
        text = event.text
        if self.ui.bridge.state == "absent" and not is_command(text):
            self.ui.bridge.download()
        if not text.strip():
            return
        if is_command(text):
            self._typed_command(text)
            return
        self.prompt.load("")
        self.run_worker(self._send(self.chat, text.removeprefix("/") if text.startswith("//") else text))

    def _typed_command(self, text: str) -> None:
        try:
            command, argument = find(COMMANDS, text)
        except UserError as error:
            self.notify_user(str(error), error=True)
            return
        self.prompt.load("")
        self.run_command(command, argument)

    async def _send(self, chat: Chat, text: str) -> None:
        editing, self.editing = self.editing, None
        self.prompt.earlier = [*self.prompt.earlier, text]
        try:
            text = await in_background(lambda: attach.expand(text, self.ui.folder))
            if not await self._right_model(chat):
                self.prompt.load(text)
                return
        except UserError as error:
            self.prompt.load(text)
            self.notify_user(str(error), error=True)
            return
        if editing is not None:
            self.ui.controller.edit(chat, editing, text)
        else:
            self.ui.controller.submit(chat, text)

    async def _right_model(self, chat: Chat) -> bool:
        """Whether to send: asked once if the conversation was held with another model than the one loaded."""
        bridge = self.ui.bridge
        loaded = bridge.reference
        if (
            chat.id is None
            or not chat.model
            or not loaded
            or chat.model == loaded
            or chat in self._asked_model
        ):
            return True
        before = chat.model.rpartition("/")[2]
        answer = await self.app.push_screen_wait(
            Choose(
                f"This conversation was held with {before}",
                f"{loaded.rpartition('/')[2]} is loaded. Loading another model stops the replies that run.",
                [f"go on with {loaded.rpartition('/')[2]}", f"load {before}", "do not send"],
            )
        )
        if answer in (None, 2):
            return False
        self._asked_model.add(chat)
        if answer == 1:
            await self.load_model(chat.model)
        return True

    async def load_model(self, name: str) -> None:
        """Load another model; replies that run are stopped."""
        for chat in self.ui.controller.chats:
            if chat.live:
                self.ui.controller.stop(chat)
        self.ui.bridge.start(name)

    async def fetch_if_absent(self) -> None:
        """Fetch a model that was asked for by name, once it turns out not to be here."""
        bridge = self.ui.bridge
        while bridge.state in ("starting", "loading") and bridge.model is None:
            await asyncio.sleep(0.02)
        if bridge.state == "absent":
            bridge.download()

    def toggle_list(self) -> None:
        """Show or hide the list; where both have no room it takes the place of the conversation."""
        if self.size.width >= LIST_COLUMNS:
            self.list_wanted = not self.list_wanted
        else:
            self._list_instead = not self._list_instead
        self.fold(self.size.width, self.size.height)
        listed = self.query_one("#side").display
        (self.query_one(ChatList) if listed else self.prompt).focus()

    def go_to_message(self, message_id: int) -> None:
        """Put the keys at a message, once it is drawn."""
        self.call_after_refresh(self.conversation.go_to, message_id)

    def next_code(self, message_id: int, count: int) -> int:
        """Which of a message's code blocks to copy: the last one, then with each press the one before."""
        known, before = self._code
        at = (before - 1) % count if known == message_id else count - 1
        self._code = (message_id, at)
        return at

    # Esc and Ctrl-C

    def escape(self) -> None:
        """Leave what one is in; else stop the reply; twice: edit the last prompt."""
        chat, controller = self.chat, self.ui.controller
        again = time.monotonic() - self._escaped < AGAIN_SECONDS
        self._escaped = time.monotonic()
        if self.editing is not None:
            self.editing = None
            self.prompt.load("")
        elif self.focused is not self.prompt:
            self.prompt.focus()
        elif chat.busy:
            self.hand_back(controller.stop(chat))
        elif self.ui.bridge.state == "downloading":
            self.ui.bridge.stop_download()
        elif again and not self.prompt.text.strip():
            self._escaped = 0.0
            asked = [message for message in chat.messages if message.role == "user"]
            if asked:
                self.edit_message(asked[-1])
        self._draw_frame()

    def interrupt(self) -> None:
        """Ctrl-C: copy what is selected, else stop the reply, else say how to leave. Never loses a text."""
        selected = self.prompt.selected_text or self.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
            self.notify_user("copied")
        elif self.chat.busy:
            self.hand_back(self.ui.controller.stop(self.chat))
        else:
            self.notify_user(f"{shown(self.ui.keys['quit'])} quits")

    def hand_back(self, texts: list[str]) -> None:
        """Put queued texts back where they can be edited."""
        if texts:
            typed = [self.prompt.value] if self.prompt.text.strip() else []
            self.prompt.load("\n\n".join([*texts, *typed]))

    def edit_message(self, message: StoredMessage) -> None:
        """Put a message of the user into the prompt; sent, it becomes a new version."""
        self.editing = message
        self.prompt.load(message.text)
        self.prompt.focus()
        self._draw_frame()
